package spawn

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"cubesandbox/guest/bareinit"

	"golang.org/x/sys/unix"
)

// shortly is a context that ends before init's patience is over by far.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestNobodyWaitsLongerThanHeWantsToForAnInitThatNeverAnswers(t *testing.T) {
	i, peer := fakeInit(t)
	for name, ask := range map[string]func() error{
		"a notice": func() error { return i.Notify(shortly(t), 0, 42, unix.SIGUSR1) },
		"a start": func() error {
			_, err := i.Spawn(shortly(t), Request{User: "root", Cmd: "x"}, [3]int{0, 1, 2})
			return err
		},
	} {
		got := make(chan error, 1)
		go func() { got <- ask() }()
		if err := receive1(t, got); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want %v", name, err, context.DeadlineExceeded)
		}
	}
	heard(t, peer) // the first; it was nobody else's turn
	if !i.Alive() || len(i.starting) != 1 {
		t.Errorf("init is alive: %t, owes %d answers; want that it may still give its one", i.Alive(), len(i.starting))
	}
}

func TestAProcessThatNobodyWaitsForAnyMoreIsKilled(t *testing.T) {
	i, peer := fakeInit(t)
	if _, err := i.Spawn(shortly(t), Request{User: "root", Cmd: "x"}, [3]int{0, 1, 2}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	heard(t, peer)
	next := spawnAsync(i)
	say(t, peer, bareinit.KindStarted, 42, 0, 0)
	killed, asked := false, false
	for range 2 { // in whichever order
		switch kind, payload := heard(t, peer); kind {
		case bareinit.KindSignal:
			killed = binary.LittleEndian.Uint32(payload) == 42 && binary.LittleEndian.Uint32(payload[4:]) == uint32(unix.SIGKILL)
		case bareinit.KindSpawn:
			asked = true
		}
	}
	if !killed || !asked {
		t.Fatalf("it is killed: %t, the next is asked for: %t", killed, asked)
	}
	say(t, peer, bareinit.KindStarted, 43, 0, 0)
	if s := receive1(t, next); s.err != nil || s.child.PID != 43 {
		t.Errorf("the next request got %+v, %v, want its own answer", s.child, s.err)
	}
	say(t, peer, bareinit.KindExited, 42, uint32(unix.SIGKILL))
	say(t, peer, bareinit.KindExited, 43, 0)
}

func TestNobodyWaitsLongerThanHeWantsToForAnInitThatDoesNotRead(t *testing.T) {
	i, peer := fakeInit(t)
	// More than the socket has room for: the rest of it is sent when there is some.
	long := Request{User: "root", Cmd: "x", Args: []string{strings.Repeat("x", bareinit.MaxRequest-10_000)}}
	for _, what := range []string{"who has sent a part", "who waits for his turn"} {
		if _, err := i.Spawn(shortly(t), long, [3]int{0, 1, 2}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want %v", what, err, context.DeadlineExceeded)
		}
	}
	if kind, payload := heard(t, peer); kind != bareinit.KindSpawn || len(payload) < bareinit.MaxRequest-10_000 {
		t.Errorf("init is sent frame %d of %d bytes, want all of the first request", kind, len(payload))
	}
	say(t, peer, bareinit.KindStarted, 0, bareinit.StepExec, uint32(unix.ENOENT))
	got := spawnAsync(i)
	if kind, payload := heard(t, peer); kind != bareinit.KindSpawn || len(payload) > 10_000 {
		t.Errorf("then frame %d of %d bytes, want the next request", kind, len(payload))
	}
	say(t, peer, bareinit.KindStarted, 42, 0, 0)
	if s := receive1(t, got); s.err != nil {
		t.Error(s.err)
	}
}

func TestNothingIsSentToAnInitWithoutRoomOnceItsTimeIsOver(t *testing.T) {
	i, peer := fakeInit(t)
	fill(t, i)
	if err := i.Notify(shortly(t), 0, 42, unix.SIGUSR1); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if !i.Alive() || len(i.starting)+len(i.writing) != 0 {
		t.Errorf("init is alive: %t; %d requests and %d frames are on their way", i.Alive(), len(i.starting), len(i.writing))
	}
	sent := make(chan error, 1)
	go func() { sent <- i.Signal(77, unix.SIGTERM) }()
	for {
		kind, payload := heard(t, peer)
		if kind == bareinit.KindNotify {
			t.Fatal("the request was sent nevertheless")
		}
		if binary.LittleEndian.Uint32(payload) == 77 {
			break
		}
	}
	if err := receive1(t, sent); err != nil {
		t.Error(err)
	}
}

// fill sends init signals until it has no room for another.
func fill(t *testing.T, i *Init) {
	t.Helper()
	frame := appendFrame(nil, bareinit.KindSignal, make([]byte, 8))
	for {
		rest, err := i.begin(shortly(t), frame, nil)
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil || len(rest) > 0 {
			t.Fatalf("%v, %d bytes are left", err, len(rest))
		}
		if err := i.finish(rest); err != nil {
			t.Fatal(err)
		}
	}
}
