package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	cube "cubesandbox"
	"cubesandbox/client"
)

func (a *app) endedCommand() *cobra.Command {
	var quiet, recoverable bool
	c := &cobra.Command{
		Use: "ended", Short: "List sandboxes that have ended, why, and which can be brought back, the last first", Args: cobra.NoArgs,
		Long: "RECOVERY is the snapshot from which `cube sandbox recover` would bring it back; (under way) where that\n" +
			"is being done already, by itself.",
		Example: "  cube sandbox ended\n  cube sandbox recover $(cube sandbox ended --recoverable -q)",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withAPI(c.Context(), func(ctx context.Context, api *client.Client) error {
				list := api.Ended
				if recoverable {
					list = api.Recoverable
				}
				all, err := list(ctx)
				if err != nil {
					return fmt.Errorf("list sandboxes that have ended: %w", err)
				}
				return a.print(all, func(w io.Writer) error { return endedTable(w, all, quiet) })
			})
		},
	}
	c.Flags().BoolVar(&recoverable, "recoverable", false, "only those that can be brought back")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "ids only")
	return c
}

func endedTable(w io.Writer, all []client.Ended, quiet bool) error {
	if quiet {
		ids := make([]cube.SandboxID, len(all))
		for i, e := range all {
			ids[i] = e.ID
		}
		return lines(ids)(w)
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "ID\tTEMPLATE\tENDED\tREASON\tRECOVERY\tDETAIL")
	for _, e := range all {
		from, back := e.Alias, "-"
		if from == "" {
			from = e.Template
		}
		if e.Recoverable {
			back = string(e.Recovery)
		}
		if e.Returning {
			back += " (under way)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, cell(from), moment(&e.EndedAt), e.Reason, back, cell(e.Detail))
	}
	return t.Flush()
}

func (a *app) recoverCommand() *cobra.Command {
	return &cobra.Command{
		Use: "recover ID...", Short: "Bring sandboxes that have died back from their newest snapshots, under the same ids",
		Long: "Memory, processes and files become what they were in the snapshot; the tokens stay. `cube sandbox ended`\n" +
			"lists those that can be brought back. One that was killed is gone.",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeEnded, Example: "  cube sandbox recover 3f9a",
		RunE: func(c *cobra.Command, args []string) error {
			return a.eachOf(c.Context(), endedID, "recover", args, func(ctx context.Context, api *client.Client, id cube.SandboxID) error {
				_, err := api.Recover(ctx, id)
				return err
			})
		},
	}
}
