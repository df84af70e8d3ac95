package lab

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// Main is TestMain of a package whose tests use one server: *s from before the first to
// after the last. Ready uses everything once, so that what is opened at first use looks like
// no leak. In make test the tests named by short run alone, where any are: the others have
// no short form, or one that says little, and are run by make check. Who names tests with
// -run gets those. Main returns the status of the process.
func Main(m *testing.M, s **Server, ready func(context.Context) error, short ...string) (status int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := shortly(short)
	if err == nil {
		*s, err = OpenServer(ctx)
	}
	if err == nil {
		if err = ready(ctx); err == nil {
			status = m.Run()
		}
		err = errors.Join(err, (*s).Close(context.Background()))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "the server of these tests: %v\n", err)
		return 1
	}
	return status
}

func shortly(tests []string) error {
	flag.Parse()
	if f := flag.Lookup("test.run"); len(tests) > 0 && Form() == "" && f != nil && f.Value.String() == "" {
		return f.Value.Set("^(" + strings.Join(tests, "|") + ")$")
	}
	return nil
}
