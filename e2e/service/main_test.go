// Package service has the tests of `cube serve` as a process, with real sandboxes.
package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// s is the server of all tests in this package that need no other.
var s *lab.Server

func TestMain(m *testing.M) { os.Exit(lab.Main(m, &s, warm)) }

// warm uses everything once, so that what is opened at first use looks like no leak.
func warm(ctx context.Context) error {
	return s.Warm(ctx, "base")
}

func create(t *testing.T, n client.NewSandbox) client.Sandbox {
	t.Helper()
	if n.Template == "" {
		n.Template = "base"
	}
	b, err := s.API.Create(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// try runs a shell line in a sandbox and returns what it says.
func try(ctx context.Context, b client.Sandbox, line string) (string, error) {
	return lab.Shell(ctx, s.API, b, line)
}

func sh(t *testing.T, b client.Sandbox, line string) string {
	t.Helper()
	out, err := try(t.Context(), b, line)
	if err != nil {
		t.Fatalf("sandbox %s: %v", b.ID, err)
	}
	return out
}

// counter starts a process that counts in its memory; count asks it.
const counter = `nohup sh -c 'n=0; trap "echo \$n >/tmp/count.new; mv /tmp/count.new /tmp/count" USR1; while :; do n=$((n+1)); sleep 0.02; done' >/dev/null 2>&1 & echo $! >/tmp/pid`

const count = `rm -f /tmp/count; kill -USR1 $(cat /tmp/pid) && until [ -e /tmp/count ]; do sleep 0.01; done; echo $(cat /tmp/pid) $(cat /tmp/count)`

// asked is what the counter says: its pid and its count.
func asked(t *testing.T, b client.Sandbox) (pid, n int) {
	t.Helper()
	if _, err := fmt.Sscan(sh(t, b, count), &pid, &n); err != nil {
		t.Fatal(err)
	}
	return pid, n
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}
