package template

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestContainedGivesLinesAndLastWords(t *testing.T) {
	var got []string
	err := contained(context.Background(), []string{"X=y"}, func(l string) { got = append(got, l) }, "sh", "-c", "echo one; echo $X >&2; printf three; exit 3")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "    y\n    three") {
		t.Errorf("got %v, want the status and the last words", err)
	}
	if !slices.Equal(got, []string{"one", "y", "three"}) {
		t.Errorf("lines: got %q", got)
	}
}

// A process that has gone its own way holds a lock; the lock is free when it is dead.
func TestContainedEndsAllThatWasStartedWhenItIsCancelled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := contained(ctx, nil, func(line string) {
		if line == "locked" {
			cancel()
		}
	}, "sh", "-c", `setsid sh -c 'exec 9>"$1"; flock 9; echo locked; exec sleep 1000' sh "$1" & wait`, "sh", file)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the cancellation", err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("the lock is still held: %v", err)
	}
}

func TestLongLinesAreCut(t *testing.T) {
	var got string
	l := &lines{each: func(s string) { got = s }}
	for range 100 {
		if _, err := l.Write([]byte(strings.Repeat("x", 1000))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if len(got) != longestLine {
		t.Errorf("got %d bytes, want %d", len(got), longestLine)
	}
}
