// Package cli is the command line of cube. Results go to stdout, as tables or
// with --json as one JSON document; progress and errors go to stderr. The exit
// statuses are in one table, which `cube help exit-status` prints.
package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"cubesandbox/internal/local"
	"cubesandbox/internal/progress"
)

// app is one run of the command line.
type app struct {
	version     string
	in          io.Reader
	out, err    io.Writer
	json, debug bool
	where       local.Options
	// apiURL and sandboxURL are empty where nobody said where the server is.
	apiURL, sandboxURL string
}

// Main runs a command and returns its exit status.
func Main(ctx context.Context, version string, args []string, stdout, stderr io.Writer) int {
	return (&app{version: version, in: os.Stdin, out: stdout, err: stderr}).main(ctx, args)
}

func (a *app) main(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	c, err := root.ExecuteContextC(ctx)
	_, inside := c.Annotations[runsProgram]
	return report(a.err, err, a.json, inside)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "cube",
		Short:         "Sandboxes that can be saved, rolled back and cloned while they run",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          help,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return a.absolute() }
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", false, "write the result as JSON")
	f.BoolVar(&a.debug, "debug", false, "log what the engine does and what the server answers, to stderr")
	f.StringVar(&a.apiURL, "api-url", fromEnv("CUBE_API_URL", ""), "address of the API ($CUBE_API_URL); the default is the server that runs here, or "+defaultAPI)
	f.StringVar(&a.sandboxURL, "sandbox-url", fromEnv("E2B_SANDBOX_URL", ""), "address of the data plane ($E2B_SANDBOX_URL); the default is port "+defaultDataPort+" beside the API")
	f.StringVar(&a.where.StateDir, "state-dir", fromEnv("CUBE_STATE", "/var/lib/cube"), "directory of images ($CUBE_STATE)")
	f.StringVar(&a.where.RunDir, "run-dir", fromEnv("CUBE_RUN", "/run/cube"), "directory of sockets and records ($CUBE_RUN)")
	f.StringVar(&a.where.BinDir, "bin-dir", fromEnv("CUBE_BIN", besideUs()), "directory of the other programs ($CUBE_BIN)")
	f.StringVar(&a.where.CacheDir, "cache-dir", fromEnv("CUBE_CACHE", "/var/cache/cube"), "directory of what can be made again ($CUBE_CACHE)")
	root.AddCommand(a.serveCommand(), a.sandboxCommand(), a.snapshotCommand(), a.templateCommand(), a.envCommand(), a.doctorCommand(), a.completionCommand(),
		a.gcCommand(), a.plansCommand(), a.demoCommand(), a.probeCommand(), a.benchCommand(), a.downCommand(), a.versionCommand(),
		&cobra.Command{Use: "exit-status", Short: "What each exit status means", Long: statusTable()})
	wrongArgs(root)
	return root
}

// absolute makes the directories those that they are from here: what we start may be
// elsewhere.
func (a *app) absolute() error {
	for _, dir := range []*string{&a.where.StateDir, &a.where.RunDir, &a.where.BinDir, &a.where.CacheDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = abs
	}
	return nil
}

// help is what a command does that only has others below it.
func help(c *cobra.Command, _ []string) error { return c.Help() }

// wrongArgs makes the complaints about arguments usage errors.
func wrongArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return fmt.Errorf("%w: %s: %w", errUsage, c.CommandPath(), err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrongArgs(sub)
	}
}

func fromEnv(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// besideUs is where this program is.
func besideUs() string {
	exe, err := os.Executable()
	if err != nil {
		return "bin"
	}
	return filepath.Dir(exe)
}

// options say how to open a session.
func (a *app) options() local.Options {
	o := a.where
	o.Progress = a.progress()
	if a.debug {
		o.Log = slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return o
}

// with runs a command's work in a session of its own, beside a server that may
// run: it has a run directory below the server's, and a keeper, which ends with it.
func (a *app) with(ctx context.Context, work func(*local.Session) error) error {
	o := a.options()
	if err := os.MkdirAll(o.RunDir, 0o711); err != nil {
		return err
	}
	o.RunDir = filepath.Join(o.RunDir, ownRunDir)
	s, err := local.Open(ctx, o)
	if err != nil {
		return err
	}
	err = work(s)
	if serr := s.Engine.Shutdown(context.WithoutCancel(ctx)); err == nil {
		err = serr
	}
	return err
}

// ownRunDir is where commands work with an engine of their own, below the run
// directory.
const ownRunDir = "own"

// progress reports on stderr, with bars where that is a terminal.
func (a *app) progress() *progress.Reporter {
	if f, ok := a.err.(*os.File); ok {
		return progress.New(f)
	}
	return progress.Plain(a.err)
}

// print writes a result: v as JSON, or the table.
func (a *app) print(v any, table func(io.Writer) error) error {
	if a.json {
		return writeJSON(a.out, v)
	}
	return table(a.out)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
