package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	cube "cubesandbox"
	"cubesandbox/client"
)

func (a *app) snapshotCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "snapshot", Aliases: []string{"snap"}, Short: "Saved states of sandboxes", Args: cobra.NoArgs, RunE: help,
		Long: "A snapshot never changes, and outlives its sandbox. `cube sandbox create --template SNAPSHOT` makes\n" +
			"sandboxes from it; `cube sandbox rollback` takes one back to it.",
	}
	c.AddCommand(a.snapshotCreateCommand(), a.snapshotLsCommand(), a.snapshotRmCommand(), a.snapshotVerifyCommand())
	return c
}

func (a *app) snapshotCreateCommand() *cobra.Command {
	var name, key string
	c := &cobra.Command{
		Use: "create SANDBOX", Short: "Save a running sandbox, which runs on, and print the snapshot's id",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeSandbox, Example: "  cube snapshot create 3f9a --name ready",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withSandbox(c.Context(), args[0], func(ctx context.Context, api *client.Client, id cube.SandboxID) error {
				s, err := api.SnapshotOnce(ctx, id, name, key)
				if err != nil {
					return fmt.Errorf("snapshot of sandbox %s: %w", id, err)
				}
				return a.print(s, line(string(s.ID)))
			})
		},
	}
	c.Flags().StringVar(&name, "name", "", "a name for it; of several with the same the newest is meant")
	c.Flags().StringVar(&key, "idempotency-key", "", keyUsage)
	return c
}

func (a *app) snapshotLsCommand() *cobra.Command {
	source := ""
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List snapshots, newest first", Args: cobra.NoArgs,
		Long: "UNIQUE is what is free on the server's disk once a snapshot is deleted and no sandbox runs that was made\n" +
			"from it; SHARED is memory of it that lies in pages which stay, for others need them too.",
		Example: "  cube snapshot ls --sandbox 3f9a",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withAPI(c.Context(), func(ctx context.Context, api *client.Client) (err error) {
				var id cube.SandboxID
				if source != "" {
					if id, err = sandboxID(ctx, api, source); err != nil {
						return err
					}
				}
				all, err := api.Snapshots(ctx, id)
				if err != nil {
					return fmt.Errorf("list snapshots: %w", err)
				}
				return a.print(all, func(w io.Writer) error { return snapshotTable(w, all) })
			})
		},
	}
	c.Flags().StringVar(&source, "sandbox", "", "only those of this sandbox, by id")
	c.RegisterFlagCompletionFunc("sandbox", a.completeSandbox)
	return c
}

func snapshotTable(w io.Writer, all []client.Snapshot) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "ID\tNAME\tSANDBOX\tCREATED\tLEVEL\tUNIQUE\tSHARED")
	for _, s := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, strings.Join(s.Names, ","), s.Source, moment(s.CreatedAt), s.Level, size(s.Unique), size(s.Shared))
	}
	return t.Flush()
}

func (a *app) snapshotRmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm SNAPSHOT...", Short: "Delete snapshots, by id or name; sandboxes made from them run on",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeSnapshots, Example: "  cube snapshot rm snap-77c0",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withAPI(c.Context(), func(ctx context.Context, api *client.Client) error {
				return a.removeImages(args, func(arg string) (string, error) {
					id, err := snapshotID(ctx, api, arg)
					if err == nil {
						err = api.DeleteImage(ctx, id)
					}
					return id, err
				})
			})
		},
	}
}

// removeImages removes every image that is named, also after one of them has failed,
// and prints those that are gone.
func (a *app) removeImages(args []string, remove func(arg string) (string, error)) error {
	removed := []string{}
	var failed []error
	for _, arg := range args {
		id, err := remove(arg)
		if err != nil {
			failed = append(failed, fmt.Errorf("remove %s: %w", arg, err))
			continue
		}
		removed = append(removed, id)
	}
	if len(removed) > 0 {
		if err := a.print(removed, lines(removed)); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}
