// Command cube is the server and its command line.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"cubesandbox/internal/cli"
	"cubesandbox/internal/failpoint"
)

// version is set when it is built.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := failpoint.FromEnv(); err != nil {
		fmt.Fprintln(os.Stderr, "cube:", err)
		os.Exit(2)
	}
	os.Exit(cli.Main(ctx, version, os.Args[1:], os.Stdout, os.Stderr))
}
