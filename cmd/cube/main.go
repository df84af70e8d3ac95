// Command cube is the server and its command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"cubesandbox/internal/cli"
)

// version is set when it is built.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(cli.Main(ctx, version, os.Args[1:], os.Stdout, os.Stderr))
}
