package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"cubesandbox/e2e/lab"
)

// l is the engine of all tests in this package.
var l *lab.Lab

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) != "" {
		os.Exit(serve())
	}
	if os.Getenv(pauserEnv) != "" {
		os.Exit(pauseAndDie())
	}
	os.Exit(run(m))
}

func run(m *testing.M) (status int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	if l, err = lab.Open(ctx, 0); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: %v\n", err)
		return 1
	}
	status = m.Run()
	if err := l.Shutdown(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: %v\n", err)
		return 1
	}
	return status
}
