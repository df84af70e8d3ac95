package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	cube "cubesandbox"
	"cubesandbox/client"
)

// programStatus is the exit status of a program in a sandbox, which becomes ours.
type programStatus int

func (s programStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// runsProgram marks commands whose exit status is that of a program.
const runsProgram = "runs a program"

// inside says how a program is to run in a sandbox.
type inside struct {
	user, cwd string
	env       []string
	timeout   time.Duration
	terminal  bool
	noStdin   bool
}

func (o *inside) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&o.user, "user", "u", "", "who runs it; the default is the template's user")
	f.StringVarP(&o.cwd, "cwd", "w", "", "where; the default is the user's home")
	f.StringArrayVarP(&o.env, "env", "e", nil, "NAME=VALUE (repeatable)")
}

const execHelp = `Run a program in a sandbox and end with its exit status. What it writes is passed on as it
comes; what we read is passed to it, unless that is a terminal.

Exit status: that of the program; 128 and the signal's number where a signal ended it; 124
when --timeout was over; 125 when cube itself failed, which stderr then says.
No shell looks at the program's arguments: for one, give bash -c '…'.`

func (a *app) execCommand() *cobra.Command {
	var o inside
	c := &cobra.Command{
		Use: "exec ID [flags] -- PROGRAM [ARGUMENT...]", Short: "Run a program in a sandbox", Long: execHelp,
		Example:           "  cube sandbox exec 3f9a -- python3 -c 'print(6*7)'\n  tar c . | cube sandbox exec 3f9a --user root --cwd /srv -- tar x",
		ValidArgsFunction: a.completeSandbox, Annotations: map[string]string{runsProgram: ""}, Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			// Flags may stand behind the id too; those of the program are its own.
			if err := c.Flags().Parse(args[1:]); err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			argv := c.Flags().Args()
			if len(argv) == 0 {
				return fmt.Errorf("%w: no program: cube sandbox exec %s -- PROGRAM", errUsage, args[0])
			}
			if o.timeout < 0 {
				return fmt.Errorf("%w: --timeout %v: want more than 0", errUsage, o.timeout)
			}
			return a.runInside(c.Context(), args[0], argv, o)
		},
	}
	o.flags(c)
	c.Flags().SetInterspersed(false)
	c.Flags().DurationVar(&o.timeout, "timeout", 0, "end it after this long, such as 30s; 0 for not")
	c.Flags().BoolVarP(&o.terminal, "tty", "t", false, "give it a terminal")
	c.Flags().BoolVar(&o.noStdin, "no-stdin", false, "pass nothing to it")
	return c
}

func (a *app) shellCommand() *cobra.Command {
	o := inside{terminal: true}
	c := &cobra.Command{
		Use: "shell ID", Short: "Open a shell in a sandbox", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeSandbox,
		Long:    "Open a shell in a sandbox, on this terminal. It ends with the shell's exit status; see `cube help sandbox exec`.",
		Example: "  cube sandbox shell 3f9a --user root", Annotations: map[string]string{runsProgram: ""},
		RunE: func(c *cobra.Command, args []string) error {
			return a.runInside(c.Context(), args[0], []string{"/bin/bash", "-i", "-l"}, o)
		},
	}
	o.flags(c)
	return c
}

// runInside runs a program on our standard streams.
func (a *app) runInside(ctx context.Context, arg string, argv []string, o inside) error {
	env, err := pairs("env", o.env)
	if err != nil {
		return err
	}
	return a.withSandbox(ctx, arg, func(ctx context.Context, api *client.Client, id cube.SandboxID) error {
		s, err := api.Get(ctx, id)
		if err != nil {
			return err
		}
		if s.State != "running" {
			return fmt.Errorf("sandbox %s is %s, and %w", id, s.State, errPaused)
		}
		g, err := api.Guest(id, s.AccessToken)
		if err != nil {
			return err
		}
		cmd := client.Command{Argv: argv, User: o.user, Cwd: o.cwd, Env: env, Timeout: o.timeout, Stdout: a.out, Stderr: a.err, GoOn: true}
		cmd.Dropped = func(bytes int64) {
			fmt.Fprintf(a.err, "cube: %d bytes of the output are missing here: nothing was read for a minute\n", bytes)
		}
		if !o.noStdin && (o.terminal || !isTerminal(a.in)) {
			cmd.Stdin = a.in
		}
		exit, err := a.attached(o.terminal, &cmd, func() (client.Exit, error) { return g.Run(ctx, cmd) })
		if err != nil {
			return fmt.Errorf("sandbox %s: %w", id, err)
		}
		if exit.Reason == "oom" {
			fmt.Fprintln(a.err, "cube: the memory of the sandbox was used up")
		}
		if status := statusOfExit(exit); status != 0 {
			return programStatus(status)
		}
		return nil
	})
}

// attached runs with the terminal that we have, if the program is to have one.
func (a *app) attached(terminal bool, cmd *client.Command, run func() (client.Exit, error)) (client.Exit, error) {
	if !terminal {
		return run()
	}
	if cmd.Env["TERM"] == "" {
		cmd.Env["TERM"] = fromEnv("TERM", "xterm-256color")
	}
	cmd.Terminal = &client.Size{Rows: 24, Cols: 80}
	if !isTerminal(a.in) {
		// The end of a file is to the program what ^D is to one who types.
		cmd.Stdin = io.MultiReader(a.in, strings.NewReader("\x04"))
		return run()
	}
	fd := int(a.in.(*os.File).Fd())
	resize, stop := windowSizes(fd)
	defer stop()
	cmd.Resize = resize
	if s, err := windowSize(fd); err == nil {
		cmd.Terminal = &s
	}
	was, err := term.MakeRaw(fd)
	if err != nil {
		return client.Exit{}, fmt.Errorf("the terminal: %w", err)
	}
	exit, err := run()
	return exit, errors.Join(err, term.Restore(fd, was))
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// statusOfExit is a program's exit status as a shell has it: 128 and the signal's
// number where a signal ended it.
func statusOfExit(e client.Exit) int {
	if e.Code >= 0 {
		return e.Code
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(e.Status, "signal: "), " (core")
	for n := syscall.Signal(1); n < 65; n++ {
		if n.String() == name {
			return 128 + int(n)
		}
	}
	return 128
}
