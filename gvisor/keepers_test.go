package gvisor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

func ignore(keeperapi.Life) {}

func TestAKeeperThatIsSlowToEndCanBeUsedAgain(t *testing.T) {
	ks := &keepers{runDir: shortDir(t), engines: keeperPrograms(t, "v1")}
	p := otherPlace(ks.runDir, ks.engines, "v1")
	f := fake(t, p.dir, "v1") // answers, and keeps its lock
	k, err := connect(t.Context(), p, ignore)
	if err != nil {
		t.Fatal(err)
	}
	ks.add(k)
	defer ks.close()
	ctx, impatient := context.WithCancel(t.Context())
	f.on(keeperapi.MethodShutdown, func(context.Context, *fdrpc.Request) error { impatient(); return nil })
	gone, err := ks.sendOff(ctx, k)
	if gone || !errors.Is(err, context.Canceled) {
		t.Errorf("sent off: %v, %v; want that it does not end", gone, err)
	}
	if _, err := os.Stat(filepath.Join(p.dir, keeperLock)); err != nil {
		t.Errorf("the lock of a keeper that runs: %v", err)
	}
	got, added, err := ks.hold(t.Context(), "v1")
	if err != nil || added || got != k {
		t.Fatalf("got another keeper (added %v): %v", added, err)
	}
	if _, err := got.lives(t.Context()); err != nil {
		t.Errorf("the keeper by which images of v1 are restored: %v", err)
	}
}

// held is what hold returns.
type held struct {
	k     *keeper
	added bool
	err   error
}

// TestAKeeperThatIsStartedForSomebodyWhoGoesAwayIsOurs: it is listed, so that it is
// tended and sent off.
func TestAKeeperThatIsStartedForSomebodyWhoGoesAwayIsOurs(t *testing.T) {
	ks := &keepers{runDir: shortDir(t), engines: keeperPrograms(t, "v1"), died: ignore}
	p := otherPlace(ks.runDir, ks.engines, "v1")
	if err := p.make(); err != nil {
		t.Fatal(err)
	}
	gate := filepath.Join(p.dir, gateFile)
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, goAway := context.WithCancel(t.Context())
	got := make(chan held, 1)
	go func() {
		k, added, err := ks.hold(ctx, "v1")
		got <- held{k, added, err}
	}()
	open, err := os.OpenFile(gate, os.O_WRONLY, 0) // when it has been started
	if err != nil {
		t.Fatal(err)
	}
	goAway()
	open.Close()
	h := soon(t, got, "the keeper is there")
	if h.err != nil || !h.added || len(ks.list()) != 1 {
		t.Fatalf("got %v, added %v, %d keepers; want it listed", h.err, h.added, len(ks.list()))
	}
	ks.release(h.k)
	if gone, err := ks.sendOff(t.Context(), h.k); !gone || err != nil {
		t.Errorf("it is not sent off: %v", err)
	}
	if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is left (%v)", err)
	}
}

func TestAKeeperOfAnotherVersionThanItsProgramSaysIsEnded(t *testing.T) {
	ks := &keepers{runDir: shortDir(t), engines: keeperPrograms(t, "v1"), died: ignore}
	p := otherPlace(ks.runDir, ks.engines, "v1")
	if err := p.make(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, liesFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, added, err := ks.hold(t.Context(), "v1")
	if added || !errors.Is(err, cube.ErrIncompatible) || !strings.Contains(err.Error(), "says that it is another") {
		t.Errorf("got added %v, %v", added, err)
	}
	if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the keeper that was started is left, with its directory (%v)", err)
	}
}

// TestAStoppedKeeperHoldsNobodyButItself: it takes connections, and says nothing. After
// 10 s that is an error which names its process; those of others do not wait for it,
// and who waits for the same one may go away.
func TestAStoppedKeeperHoldsNobodyButItself(t *testing.T) {
	t.Parallel()
	ks := &keepers{runDir: shortDir(t), engines: keeperPrograms(t, "v1", "v2"), died: ignore}
	defer ks.close()
	p := otherPlace(ks.runDir, ks.engines, "v1")
	if err := p.make(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, keeperLock), []byte("4242\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(p.dir, keeperSocket), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stopped := make(chan held, 1)
	go func() {
		k, added, err := ks.hold(t.Context(), "v1")
		stopped <- held{k, added, err}
	}()
	c, err := l.Accept() // it has connected
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() // what nobody refers to is closed when garbage is collected
	fake(t, otherPlace(ks.runDir, ks.engines, "v2").dir, "v2")
	other := make(chan held, 2)
	go func() {
		k, added, err := ks.hold(t.Context(), "v2")
		other <- held{k, added, err}
	}()
	if h := soon(t, other, "the keeper of another version"); h.err != nil || !h.added {
		t.Errorf("another version: added %v, %v", h.added, h.err)
	}
	ctx, goAway := context.WithCancel(t.Context())
	go func() {
		k, added, err := ks.hold(ctx, "v1")
		other <- held{k, added, err}
	}()
	goAway()
	if h := soon(t, other, "somebody who goes away"); !errors.Is(h.err, context.Canceled) {
		t.Errorf("who goes away gets %v", h.err)
	}
	select {
	case h := <-stopped:
		if !errors.Is(h.err, cube.ErrUnavailable) || !strings.Contains(h.err.Error(), "process 4242 has not answered within 10s") {
			t.Errorf("got %v, want that process 4242 does not answer", h.err)
		}
	case <-time.After(2 * answerTime):
		t.Errorf("it is waited for for %v", 2*answerTime)
	}
}

// TestAKeeperThatStopsLaterIsNamed: as one that is stopped from the start.
func TestAKeeperThatStopsLaterIsNamed(t *testing.T) {
	t.Parallel()
	e, f := fakeEngine(t, 0)
	k := e.keepers.current
	goOn := make(chan struct{})
	defer close(goOn)
	f.on(keeperapi.MethodList, func(context.Context, *fdrpc.Request) error { <-goOn; return nil })
	listed := make(chan error, 1)
	go func() { _, err := k.lives(t.Context()); listed <- err }()
	select {
	case err := <-listed:
		if !errors.Is(err, cube.ErrUnavailable) || !strings.Contains(err.Error(), "has not answered within 10s") {
			t.Errorf("got %v, want that its process does not answer", err)
		}
	case <-time.After(2 * answerTime):
		t.Errorf("it is waited for for %v", 2*answerTime)
	}
}
