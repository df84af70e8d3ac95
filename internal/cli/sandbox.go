package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	cube "cubesandbox"
	"cubesandbox/client"
)

func (a *app) sandboxCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "sandbox", Aliases: []string{"sb"}, Short: "Sandboxes: make, use, save and end them", Args: cobra.NoArgs, RunE: help,
		Long: "A sandbox is named by its id, or by the first 4 digits or more of it where they fit one only.",
	}
	c.AddCommand(a.createCommand(), a.lsCommand(), a.infoCommand(), a.execCommand(), a.shellCommand(), a.killCommand(),
		a.pauseCommand(), a.resumeCommand(), a.rollbackCommand(), a.cloneCommand(), a.endedCommand(), a.recoverCommand())
	return c
}

func (a *app) createCommand() *cobra.Command {
	var n client.NewSandbox
	var t timeout
	var metadata, env []string
	onTimeout := "kill"
	c := &cobra.Command{
		Use: "create", Short: "Make a sandbox and print its id", Args: cobra.NoArgs,
		Example: "  cube sandbox create\n  cube sandbox create --template snap-0123 --timeout 30m --metadata user=ann --env STAGE=test",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			n.Timeout, n.OnTimeout = t.Duration, cube.OnTimeout(onTimeout)
			if onTimeout != "kill" && onTimeout != "pause" {
				return fmt.Errorf("%w: --on-timeout %s: want kill or pause", errUsage, onTimeout)
			}
			if n.Metadata, err = pairs("metadata", metadata); err != nil {
				return err
			}
			if n.Env, err = pairs("env", env); err != nil {
				return err
			}
			return a.withAPI(c.Context(), func(ctx context.Context, api *client.Client) error {
				if n.Template, err = startID(ctx, api, n.Template); err != nil {
					return err
				}
				s, err := api.Create(ctx, n)
				if err != nil {
					return fmt.Errorf("create a sandbox: %w", err)
				}
				return a.print(s, line(string(s.ID)))
			})
		},
	}
	f := c.Flags()
	f.StringVarP(&n.Template, "template", "t", fromEnv("CUBE_TEMPLATE_ID", baseTemplate), "template or snapshot, by name or id ($CUBE_TEMPLATE_ID)")
	f.Var(&t, "timeout", "end it after this long without traffic: 90s, 15m, or never (the default)")
	f.StringVar(&onTimeout, "on-timeout", onTimeout, "what happens then: kill or pause")
	f.BoolVar(&n.AutoResume, "auto-resume", false, "while it is paused, traffic to it brings it back")
	f.BoolVar(&n.AutoRecover, "auto-recover", false, "when it dies, bring it back from its newest snapshot")
	f.BoolVar(&n.FilesFallback, "files-fallback", false, "where its memory cannot be restored, boot it from its files")
	f.StringVar(&n.Key, "idempotency-key", "", keyUsage)
	f.StringArrayVar(&metadata, "metadata", nil, "NAME=VALUE to find it by (repeatable)")
	f.StringArrayVarP(&env, "env", "e", nil, "NAME=VALUE for every program in it (repeatable)")
	f.BoolVar(&n.NoInternet, "no-internet", false, "let it reach nothing outside")
	f.BoolVar(&n.Private, "private", false, "ask for a token on all its ports")
	c.RegisterFlagCompletionFunc("template", a.completeTemplates)
	return c
}

// keyUsage says what the flag is that makes a command idempotent.
const keyUsage = "the same command with the same key gives, for a day, what the first one made (up to 255 visible ASCII characters)"

// line writes one.
func line(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := fmt.Fprintln(w, s)
		return err
	}
}

// lines writes one for each.
func lines[T ~string](all []T) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, s := range all {
			if _, err := fmt.Fprintln(w, s); err != nil {
				return err
			}
		}
		return nil
	}
}

func (a *app) lsCommand() *cobra.Command {
	var q client.Query
	var metadata []string
	var quiet bool
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List sandboxes, newest first", Args: cobra.NoArgs,
		Example: "  cube sandbox ls --state paused --metadata user=ann",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			for _, s := range q.States {
				if s != "running" && s != "paused" {
					return fmt.Errorf("%w: --state %s: want running or paused", errUsage, s)
				}
			}
			if q.Metadata, err = pairs("metadata", metadata); err != nil {
				return err
			}
			return a.withAPI(c.Context(), func(ctx context.Context, api *client.Client) error {
				all, err := api.List(ctx, q)
				if err != nil {
					return fmt.Errorf("list sandboxes: %w", err)
				}
				return a.print(all, func(w io.Writer) error { return sandboxTable(w, all, quiet, time.Now()) })
			})
		},
	}
	c.Flags().StringSliceVar(&q.States, "state", nil, "only these: running, paused")
	c.Flags().StringArrayVar(&metadata, "metadata", nil, "only those with NAME=VALUE (repeatable)")
	c.Flags().StringVar(&q.Template, "template", "", "only those made from this template")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "ids only")
	return c
}

func sandboxTable(w io.Writer, all []client.Sandbox, quiet bool, now time.Time) error {
	if quiet {
		ids := make([]cube.SandboxID, len(all))
		for i, s := range all {
			ids[i] = s.ID
		}
		return lines(ids)(w)
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "ID\tSTATE\tTEMPLATE\tCPUS\tMEMORY\tSTARTED\tENDS\tMETADATA")
	for _, s := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d MiB\t%s\t%s\t%s\n", s.ID, condition(s), madeFrom(s), s.CPUs, s.MemoryMiB,
			moment(s.StartedAt), ends(s, now), labels(s.Metadata))
	}
	return t.Flush()
}

// condition is the state, and that its agent does not answer as it should.
func condition(s client.Sandbox) string {
	if s.Unhealthy != nil {
		return s.State + ", unhealthy"
	}
	return s.State
}

func madeFrom(s client.Sandbox) string {
	if s.Alias != "" {
		return cell(s.Alias)
	}
	return cell(s.Template)
}

// moment is a time as people here write it.
func moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func ends(s client.Sandbox, now time.Time) string {
	switch {
	case s.State == "paused":
		return "-" // its clock stands still
	case s.EndAt == nil:
		return "never"
	}
	return "in " + max(0, s.EndAt.Sub(now)).Round(time.Second).String()
}

func labels(m map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, name+"="+m[name])
	}
	return cell(strings.Join(out, " "))
}

func (a *app) infoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "info ID", Short: "Show all about a sandbox", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeSandbox,
		Example: "  cube sandbox info 3f9a",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withSandbox(c.Context(), args[0], func(ctx context.Context, api *client.Client, id cube.SandboxID) error {
				s, err := api.Inspect(ctx, id)
				if err != nil {
					return err
				}
				return a.print(s, func(w io.Writer) error { return sandboxInfo(w, s, time.Now()) })
			})
		},
	}
}

func sandboxInfo(w io.Writer, s client.Sandbox, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "id\t%s\nstate\t%s\ntemplate\t%s\n", s.ID, s.State, s.Template)
	if u := s.Unhealthy; u != nil {
		fmt.Fprintf(t, "unhealthy\tsince %s: %s\nto mend it\tcube sandbox rollback, or kill\n", moment(&u.Since), cell(u.Reason))
	}
	if s.Alias != "" {
		fmt.Fprintf(t, "name of template\t%s\n", s.Alias)
	}
	if s.Parent != "" {
		fmt.Fprintf(t, "copy of\t%s\n", s.Parent)
	}
	if s.Restored != "" {
		fmt.Fprintf(t, "restored from\t%s\n", s.Restored)
	}
	fmt.Fprintf(t, "size\t%d CPUs, %d MiB memory, %d MiB disk\nstarted\t%s\nends\t%s\n", s.CPUs, s.MemoryMiB, s.DiskMiB, moment(s.StartedAt), ends(s, now))
	if l := s.Lifecycle; l != nil && l.OnTimeout != "" {
		fmt.Fprintf(t, "then\t%s\n", l.OnTimeout)
	}
	if s.AutoRecover {
		fmt.Fprintf(t, "if it dies\tcomes back from its newest snapshot\n")
	}
	if s.FilesFallback {
		fmt.Fprintf(t, "without its memory\tis booted from its files\n")
	}
	if s.Space != nil {
		where := "memory and files"
		if s.State == "paused" {
			where = "on disk"
		}
		fmt.Fprintf(t, "%s\t%s of its own, %s shared\n", where, size(s.Unique), size(s.Shared))
	}
	if s.Domain != "" {
		fmt.Fprintf(t, "ports\thttp://PORT-%s.%s\n", s.ID, s.Domain)
	}
	if len(s.Metadata) > 0 {
		fmt.Fprintf(t, "metadata\t%s\n", labels(s.Metadata))
	}
	return t.Flush()
}

// withSandbox runs a command's work on the sandbox that an argument means.
func (a *app) withSandbox(ctx context.Context, arg string, work func(context.Context, *client.Client, cube.SandboxID) error) error {
	return a.withAPI(ctx, func(ctx context.Context, api *client.Client) error {
		id, err := sandboxID(ctx, api, arg)
		if err != nil {
			return err
		}
		return work(ctx, api, id)
	})
}
