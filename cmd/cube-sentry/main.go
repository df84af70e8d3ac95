// Command cube-sentry is the keeper and, executed again by it, the sentry of each
// sandbox.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"cubesandbox/gvisor/sentry"
)

func main() {
	if sentry.IsSentry() {
		sentry.RunSentry()
		return
	}
	stderr := os.Stderr // the keeper gives itself standard files of its own
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(stderr, "cube-sentry: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 1 && args[0] == "version" {
		fmt.Println(sentry.Version())
		return nil
	}
	if len(args) == 0 || args[0] != "keeper" {
		return fmt.Errorf("usage: cube-sentry version | cube-sentry keeper -run DIR -cgroup NODE -network FILE")
	}
	fs := flag.NewFlagSet("keeper", flag.ContinueOnError)
	var c sentry.Config
	fs.StringVar(&c.RunDir, "run", "/run/cube", "directory of sockets and records")
	fs.StringVar(&c.Cgroup, "cgroup", "cube/default", "node below each cgroup mount")
	fs.StringVar(&c.Network, "network", "", "path of cube-network")
	logPath := fs.String("log", "", "file of the log; default is standard error")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	out := os.Stderr
	if *logPath != "" {
		f, err := os.OpenFile(*logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		out = f
	}
	c.Log = slog.New(slog.NewJSONHandler(out, nil))
	var err error
	if c.Binary, err = os.Executable(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return sentry.Run(ctx, c)
}
