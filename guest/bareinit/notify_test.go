package bareinit

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// notified has init send a signal for a user, and returns what came of it.
func notified(t *testing.T, f *os.File, uid, pid, signal uint32) unix.Errno {
	t.Helper()
	var body []byte
	for _, w := range []uint32{uid, pid, signal} {
		body = binary.LittleEndian.AppendUint32(body, w)
	}
	ask(t, f, KindNotify, body, nil)
	kind, got := answered(t, f)
	if kind != KindStarted || got[0] != 0 || got[1] != StepNotified {
		t.Fatalf("frame %d %v, want the end of a notice", kind, got)
	}
	return unix.Errno(got[2])
}

// TestASignalIsSentWithItsSendersRights: a user's own process takes it; that of root does
// not, and root stays root for the next.
func TestASignalIsSentWithItsSendersRights(t *testing.T) {
	f := peer(t)
	victim, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	pid, me := uint32(victim.Pid), uint32(os.Getuid())
	if me == 0 { // only root may become somebody else
		if errno := notified(t, f, 65534, pid, uint32(unix.SIGKILL)); errno != unix.EPERM {
			t.Errorf("nobody signals a process of root: %v", errno)
		}
	}
	if err := victim.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the process is gone: %v", err)
	}
	if errno := notified(t, f, me, pid, uint32(unix.SIGTERM)); errno != 0 {
		t.Errorf("its owner signals it: %v", errno)
	}
	state, err := victim.Wait()
	if err != nil || state.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGTERM {
		t.Errorf("it ended as %v, %v", state, err)
	}
	if errno := notified(t, f, me, pid, uint32(unix.SIGTERM)); errno != unix.ESRCH {
		t.Errorf("one that has ended: %v", errno)
	}
}

func TestNoticesReachNoGroupsAndNotInit(t *testing.T) {
	f := peer(t)
	for _, pid := range []uint32{0, 1, ^uint32(0), 1 << 31, -uint32(unix.Getpgrp())} {
		if errno := notified(t, f, uint32(os.Getuid()), pid, uint32(unix.SIGKILL)); errno != unix.ESRCH {
			t.Errorf("pid %d: %v", int32(pid), errno)
		}
	}
}
