package spawn

import (
	"errors"
	"testing"

	"cubesandbox/guest/bareinit"

	"golang.org/x/sys/unix"
)

func TestNotifySaysWhatBecameOfTheSignal(t *testing.T) {
	i, peer := fakeInit(t)
	for _, want := range []error{nil, unix.ESRCH, unix.EPERM} {
		got := make(chan error, 1)
		go func() { got <- i.Notify(t.Context(), 1000, 42, unix.SIGUSR1) }()
		kind, payload := heard(t, peer)
		if kind != bareinit.KindNotify || string(payload) != "\xe8\x03\x00\x00\x2a\x00\x00\x00\x0a\x00\x00\x00" {
			t.Errorf("init is sent frame %d %x", kind, payload)
		}
		errno, _ := want.(unix.Errno)
		say(t, peer, bareinit.KindStarted, 0, bareinit.StepNotified, uint32(errno))
		if err := receive1(t, got); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

func TestAnInitThatAnswersANoticeWithAProcessIsNotBelieved(t *testing.T) {
	i, peer := fakeInit(t)
	got := make(chan error, 1)
	go func() { got <- i.Notify(t.Context(), 0, 42, unix.SIGUSR1) }()
	heard(t, peer)
	say(t, peer, bareinit.KindStarted, 99, 0, 0)
	if err := receive1(t, got); err == nil {
		t.Error("it is taken for a success")
	}
	i.Kill()
	if err := i.Notify(t.Context(), 0, 42, unix.SIGUSR1); !errors.Is(err, ErrInitDied) {
		t.Errorf("a dead init: %v", err)
	}
}
