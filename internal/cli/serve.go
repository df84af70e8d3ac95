package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/internal/serve"
)

// startTime bounds how long a server in the background may take until it answers.
const startTime = 60 * time.Second

func (a *app) serveCommand() *cobra.Command {
	o := serve.Options{Version: a.version}
	var detach, jsonLog bool
	var memoryMiB int64
	c := &cobra.Command{
		Use: "serve", Short: "Serve the API and the data plane",
		Long: `Serve the API on 127.0.0.1:3000 and the data plane on 127.0.0.1:3002, until SIGTERM or
SIGINT. Sandboxes run on when the server stops, and are found again by the next one;
"cube down" ends everything.

With -d the server runs in the background and the command returns when it answers. One
that runs already is kept if it is of the same build, and replaced if it is not.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if memoryMiB < 0 || o.CPUs < 0 || o.Booted < 0 || o.Restored < 0 || o.MaxTimeout < 0 {
				return fmt.Errorf("%w: limits and sizes cannot be below 0", errUsage)
			}
			if o.Dialect != "cube" && o.Dialect != "e2b" {
				return fmt.Errorf("%w: --dialect %s: want cube or e2b", errUsage, o.Dialect)
			}
			o.Options = a.options()
			o.MemoryBudget = memoryMiB << 20
			if detach {
				return a.serveDetached(c)
			}
			o.Log = a.logger(jsonLog)
			return a.serve(c.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.API, "listen", "127.0.0.1:3000", "address of the API; port 0 takes a free one")
	f.StringVar(&o.Data, "data-listen", "127.0.0.1:3002", "address of the data plane, plain and TLS")
	f.StringVar(&o.Domain, "domain", "", "what sandboxes' host names end in, with port (default: localhost and the data plane's port)")
	f.BoolVar(&o.NoAuth, "no-auth", false, "ask for no key; on loopback addresses only")
	f.StringVar(&o.Dialect, "dialect", "cube", "of clients that do not show theirs: cube or e2b")
	f.DurationVar(&o.MaxTimeout, "max-timeout", 0, "longest timeout that a sandbox may have; 0: any")
	f.Int64Var(&memoryMiB, "memory", 0, "MiB that sandboxes may take together; 0: what the machine has free")
	f.IntVar(&o.CPUs, "cpus", 0, "processors that sandboxes may be promised together; 0: 256 for each of the machine's")
	f.IntVar(&o.Booted, "pool-booted", 2, "kernels kept booted for each kind of template")
	f.IntVar(&o.Restored, "pool-restored", 2, "sandboxes kept restored and frozen for each named template")
	f.BoolVarP(&detach, "detach", "d", false, "run in the background, and return when it answers")
	f.BoolVar(&jsonLog, "log-json", false, "log as JSON lines")
	return c
}

// logger logs to stderr.
func (a *app) logger(asJSON bool) *slog.Logger {
	level := &slog.HandlerOptions{Level: slog.LevelInfo}
	if a.debug {
		level.Level = slog.LevelDebug
	}
	if asJSON {
		return slog.New(slog.NewJSONHandler(a.err, level))
	}
	return slog.New(slog.NewTextHandler(a.err, level))
}

// serve serves until it is told to stop.
func (a *app) serve(ctx context.Context, o serve.Options) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	raiseFiles(o.Log)
	return serve.Run(ctx, o, func(s serve.State) {
		a.print(s, func(w io.Writer) error { return tellServer(w, s) })
	})
}

// raiseFiles asks for as many open files as we may have: each stream takes two.
func raiseFiles(log *slog.Logger) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Cur == l.Max {
		return
	}
	l.Cur = l.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		log.Warn("the limit of open files could not be raised", "error", err)
	}
}

func tellServer(w io.Writer, s serve.State) error {
	_, err := fmt.Fprintf(w, "API http://%s, data plane http(s)://%s, domain %s\n", s.API, s.Data, s.Domain)
	return err
}

// serveDetached starts a server in the background.
func (a *app) serveDetached(c *cobra.Command) error {
	ctx, cancel := context.WithTimeout(c.Context(), startTime)
	defer cancel()
	s, running, err := serve.Running(a.where.RunDir)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if running && sameProgram(s.PID, exe) {
		return a.print(s, func(w io.Writer) error {
			fmt.Fprintf(w, "runs already, process %d: ", s.PID)
			return tellServer(w, s)
		})
	}
	if running {
		if _, err := serve.Stop(ctx, a.where.RunDir); err != nil {
			return err
		}
	}
	if s, err = a.spawnServer(ctx, exe); err != nil {
		return err
	}
	return a.print(s, func(w io.Writer) error { return tellServer(w, s) })
}

// sameProgram reports whether a process runs the program that is now at path.
func sameProgram(pid int, path string) bool {
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	ours, err := os.Stat(path)
	return err == nil && os.SameFile(theirs, ours)
}

// spawnServer starts a server with our own arguments and waits until it answers.
func (a *app) spawnServer(ctx context.Context, exe string) (serve.State, error) {
	if err := os.MkdirAll(a.where.RunDir, 0o711); err != nil {
		return serve.State{}, err
	}
	logPath := filepath.Join(a.where.RunDir, "serve.log")
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return serve.State{}, err
	}
	defer logFile.Close()
	// The last of a flag counts. It runs in another directory than we do.
	args := append(slices.Clone(os.Args[1:]), "--detach=false",
		"--state-dir", a.where.StateDir, "--run-dir", a.where.RunDir, "--bin-dir", a.where.BinDir, "--cache-dir", a.where.CacheDir)
	cmd := exec.Command(exe, args...)
	cmd.Stderr, cmd.Dir = logFile, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return serve.State{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if s, ok, err := serve.Running(a.where.RunDir); err == nil && ok && s.PID == cmd.Process.Pid {
			return s, nil
		}
		select {
		case err := <-ended:
			if s, ok, rerr := serve.Running(a.where.RunDir); rerr == nil && ok {
				return s, nil // somebody else was quicker
			}
			return serve.State{}, fmt.Errorf("the server ended at once (%v): %s", err, lastLines(logPath))
		case <-ctx.Done():
			cmd.Process.Signal(syscall.SIGTERM)
			return serve.State{}, fmt.Errorf("the server does not answer after %v; see %s: %w", startTime, logPath, cube.ErrUnavailable)
		case <-tick.C:
		}
	}
}

// lastLines are the end of a log, for an error.
func lastLines(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-1000):])
}
