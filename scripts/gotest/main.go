// Command gotest runs go test for make; see package testrun. Its first argument
// names the result, which goes to .cache/results/NAME.json.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"cubesandbox/internal/testrun"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: gotest NAME go-test-arguments…")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if _, err := testrun.Run(ctx, os.Stdout, ".cache/results", os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "gotest %s: %v; all output is in .cache/results/%[1]s.json\n", os.Args[1], err)
		os.Exit(1)
	}
}
