package template

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	}, "sh", "-c", holdLock, "sh", file)
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

// holdLock takes a lock in a process that has gone its own way, and says so.
const holdLock = `setsid sh -c 'exec 9>"$1"; flock 9; echo locked; exec sleep 1000' sh "$1" & wait`

// builderLock tells the test binary to be a builder that never ends.
const builderLock = "CUBE_TEST_BUILDER_LOCK"

func TestMain(m *testing.M) {
	if file := os.Getenv(builderLock); file != "" {
		err := contained(context.Background(), nil, func(line string) { fmt.Println(line) }, "sh", "-c", holdLock, "sh", file)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestAKilledBuilderLeavesNoProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	builder := exec.Command(os.Args[0])
	builder.Env = append(os.Environ(), builderLock+"="+file)
	out, err := builder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := builder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Errorf("the builder said %q, %v", line, err)
	}
	if err := builder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// It ends when the builder has; what it had started goes at the same moment.
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Error(err)
	}
	if err := builder.Wait(); err == nil {
		t.Error("the builder ended well")
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Error(err)
	}
}
