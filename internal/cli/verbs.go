package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	cube "cubesandbox"
	"cubesandbox/client"
)

// each runs a verb on every sandbox that is named, also after one of them has
// failed, and prints those that went well.
func (a *app) each(ctx context.Context, verb string, args []string, do func(context.Context, *client.Client, cube.SandboxID) error) error {
	return a.eachOf(ctx, sandboxID, verb, args, do)
}

// eachOf is each with another way to find a sandbox.
func (a *app) eachOf(ctx context.Context, find func(context.Context, *client.Client, string) (cube.SandboxID, error), verb string, args []string,
	do func(context.Context, *client.Client, cube.SandboxID) error) error {
	return a.withAPI(ctx, func(ctx context.Context, api *client.Client) error {
		done := []cube.SandboxID{}
		var failed []error
		for _, arg := range args {
			id, err := find(ctx, api, arg)
			if err == nil {
				err = do(ctx, api, id)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s %s: %w", verb, arg, err))
				continue
			}
			done = append(done, id)
		}
		if len(done) > 0 {
			if err := a.print(done, lines(done)); err != nil {
				return err
			}
		}
		return errors.Join(failed...)
	})
}

func (a *app) killCommand() *cobra.Command {
	return &cobra.Command{
		Use: "kill ID...", Aliases: []string{"rm"}, Short: "End sandboxes, paused ones too; their snapshots stay",
		Long: "One that has died and could be recovered is given up: then it cannot be.",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeSandboxes, Example: "  cube sandbox kill $(cube sandbox ls -q)",
		RunE: func(c *cobra.Command, args []string) error {
			return a.eachOf(c.Context(), killableID, "kill", args, func(ctx context.Context, api *client.Client, id cube.SandboxID) error { return api.Kill(ctx, id) })
		},
	}
}

func (a *app) pauseCommand() *cobra.Command {
	filesOnly := false
	c := &cobra.Command{
		Use: "pause ID...", Short: "Save sandboxes to disk and free their memory",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeSandboxes, Example: "  cube sandbox pause 3f9a",
		RunE: func(c *cobra.Command, args []string) error {
			return a.each(c.Context(), "pause", args, func(ctx context.Context, api *client.Client, id cube.SandboxID) error {
				if filesOnly {
					return api.PauseFilesOnly(ctx, id)
				}
				return api.Pause(ctx, id)
			})
		},
	}
	c.Flags().BoolVar(&filesOnly, "files-only", false, "keep the files and no memory: they will be booted from them")
	return c
}

func (a *app) resumeCommand() *cobra.Command {
	var t timeout
	var o client.Resumption
	c := &cobra.Command{
		Use: "resume ID...", Short: "Bring paused sandboxes back, under the same ids",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeSandboxes, Example: "  cube sandbox resume 3f9a --timeout 1h",
		RunE: func(c *cobra.Command, args []string) error {
			o.Timeout = t.Duration
			return a.each(c.Context(), "resume", args, func(ctx context.Context, api *client.Client, id cube.SandboxID) error {
				s, err := api.ResumeWith(ctx, id, o)
				if err == nil && s.Restored == cube.RestoredFiles && !o.Files {
					fmt.Fprintf(a.err, "cube: sandbox %s was booted from its files, without its memory\n", id)
				}
				return err
			})
		},
	}
	c.Flags().Var(&t, "timeout", "a new timeout: 90s, 15m, or never; the default is the one that it had")
	c.Flags().BoolVar(&o.Files, "files", false, "boot them from their files, without their memory")
	c.Flags().BoolVar(&o.FilesFallback, "files-fallback", false, "do so where their memory cannot be restored")
	return c
}

func (a *app) rollbackCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rollback ID SNAPSHOT", Short: "Take a running sandbox back to a snapshot, under the same id",
		Long: "Memory, processes and files become what they were in the snapshot. Connections end.",
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.completeRollback, Example: "  cube sandbox rollback 3f9a snap-77c0",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withSandbox(c.Context(), args[0], func(ctx context.Context, api *client.Client, id cube.SandboxID) error {
				snapshot, err := snapshotID(ctx, api, args[1])
				if err != nil {
					return err
				}
				if err := api.Rollback(ctx, id, snapshot); err != nil {
					return fmt.Errorf("roll sandbox %s back: %w", id, err)
				}
				return a.print(map[string]any{"sandboxID": id, "snapshotID": snapshot}, line(string(id)))
			})
		},
	}
}

func (a *app) cloneCommand() *cobra.Command {
	k := client.Cloning{Count: 1}
	var t timeout
	c := &cobra.Command{
		Use: "clone ID", Short: "Make sandboxes from a running one, which runs on; all of them or none",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeSandbox, Example: "  cube sandbox clone 3f9a --count 10",
		RunE: func(c *cobra.Command, args []string) error {
			if k.Count < 1 || k.Count > 100 {
				return fmt.Errorf("%w: --count %d: want 1 to 100", errUsage, k.Count)
			}
			if k.Concurrency < 0 {
				return fmt.Errorf("%w: --concurrency %d: want 1 or more", errUsage, k.Concurrency)
			}
			k.Timeout = t.Duration
			return a.withSandbox(c.Context(), args[0], func(ctx context.Context, api *client.Client, id cube.SandboxID) error {
				clones, err := api.Clone(ctx, id, k)
				if err != nil {
					return fmt.Errorf("clone sandbox %s: %w", id, err)
				}
				return a.print(clones, func(w io.Writer) error {
					for _, s := range clones {
						if _, err := fmt.Fprintln(w, s.ID); err != nil {
							return err
						}
					}
					return nil
				})
			})
		},
	}
	c.Flags().IntVarP(&k.Count, "count", "n", k.Count, "how many, 1 to 100")
	c.Flags().IntVar(&k.Concurrency, "concurrency", 0, "how many are restored at the same time; the default is what fits the machine")
	c.Flags().Var(&t, "timeout", "of each: 90s, 15m, or never; the default is that of the source")
	c.Flags().StringVar(&k.Key, "idempotency-key", "", keyUsage)
	return c
}
