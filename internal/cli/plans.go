package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"cubesandbox/client"
)

func (a *app) plansCommand() *cobra.Command {
	return &cobra.Command{
		Use: "plans", Short: "Show which verbs are under way in the server, and how far", Args: cobra.NoArgs,
		Long: "A verb of several steps is written down before it begins. Where the server ends in the middle, the next\n" +
			"one finishes it or takes it back: the last column says which it would be now.",
		Example: "  cube plans --json",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withAPI(c.Context(), func(ctx context.Context, api *client.Client) error {
				all, err := api.Plans(ctx)
				if err != nil {
					return fmt.Errorf("list plans: %w", err)
				}
				return a.print(all, func(w io.Writer) error { return planTable(w, all) })
			})
		},
	}
}

func planTable(w io.Writer, all []client.Plan) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "ID\tVERB\tSANDBOX\tIMAGE\tBEGAN\tDONE\tNEXT\tAT A START")
	for _, p := range all {
		done, next := progressOf(p)
		then := "taken back"
		if p.Ahead {
			then = "finished"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d of %d\t%s\t%s\n", p.ID, p.Verb, dash(string(p.Sandbox)), dash(string(p.Image)),
			moment(&p.BeganAt), done, len(p.Steps), next, then)
	}
	return t.Flush()
}

// progressOf counts the steps that are done, and names the first that is not.
func progressOf(p client.Plan) (done int, next string) {
	for _, s := range p.Steps {
		switch {
		case s.Done:
			done++
		case next == "":
			next = s.Name
		}
	}
	return done, dash(next)
}

// dash stands for nothing in a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
