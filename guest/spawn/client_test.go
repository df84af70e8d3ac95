package spawn

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"cubesandbox/guest/bareinit"

	"golang.org/x/sys/unix"
)

// fakeInit is an Init whose process only sleeps: the test speaks for it.
func fakeInit(t *testing.T) (*Init, *net.UnixConn) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := [2]*net.UnixConn{}
	for n, fd := range pair {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[n] = c.(*net.UnixConn)
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	mntns, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	i := newInit(cmd.Process.Pid)
	i.conn, i.mntns = conns[0], mntns
	go i.watch()
	t.Cleanup(func() {
		i.Kill()
		<-i.Done()
		conns[1].Close()
	})
	return i, conns[1]
}

func say(t *testing.T, c *net.UnixConn, kind byte, words ...uint32) {
	t.Helper()
	var payload []byte
	for _, w := range words {
		payload = binary.LittleEndian.AppendUint32(payload, w)
	}
	if _, err := c.Write(appendFrame(nil, kind, payload)); err != nil {
		t.Fatal(err)
	}
}

// heard reads one frame that the agent sent.
func heard(t *testing.T, c *net.UnixConn) (kind byte, payload []byte) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	header := make([]byte, bareinit.HeaderSize)
	if _, err := io.ReadFull(c, header); err != nil {
		t.Fatal(err)
	}
	payload = make([]byte, binary.LittleEndian.Uint32(header))
	if _, err := io.ReadFull(c, payload); err != nil {
		t.Fatal(err)
	}
	return header[4], payload
}

type spawned struct {
	child *Child
	err   error
}

func spawnAsync(i *Init) chan spawned {
	got := make(chan spawned, 1)
	go func() {
		c, err := i.Spawn(context.Background(), Request{User: "root", Cmd: "x"}, [3]int{0, 1, 2})
		got <- spawned{c, err}
	}()
	return got
}

func receive1[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing within 10 s")
	}
	return v
}

func TestExitThatFollowsTheStartAtOnceIsNotLost(t *testing.T) {
	i, peer := fakeInit(t)
	got := spawnAsync(i)
	heard(t, peer)
	say(t, peer, bareinit.KindStarted, 42, 0, 0)
	say(t, peer, bareinit.KindExited, 42, 7<<8)
	s := receive1(t, got)
	if s.err != nil || s.child.PID != 42 {
		t.Fatalf("spawn = %+v, %v", s.child, s.err)
	}
	receive1(t, s.child.Done())
	if s.child.Status().ExitStatus() != 7 {
		t.Errorf("exit status %d, want 7", s.child.Status().ExitStatus())
	}
}

func TestFailureToStartIsTyped(t *testing.T) {
	for _, c := range []struct {
		step uint32
		err  unix.Errno
		want Failure
		text string
	}{
		{bareinit.StepExec, unix.ENOENT, FailureCommand, "error starting process 'x': executable file not found in PATH"},
		{bareinit.StepExec, unix.EACCES, FailureCommand, "error starting process 'x': permission denied"},
		{bareinit.StepCwd, unix.ENOENT, FailureCwd, "cwd '/root' does not exist"},
		{bareinit.StepCwd, unix.ENOTDIR, FailureCwd, "cwd '/root' is not a directory"},
		{bareinit.StepClone, unix.EAGAIN, FailureLimit, "error starting process: too many processes in this sandbox"},
		{bareinit.StepUser, unix.EPERM, FailureOther, ""},
		{1 << 31, 1 << 31, FailureOther, ""},
	} {
		i, peer := fakeInit(t)
		got := spawnAsync(i)
		heard(t, peer)
		say(t, peer, bareinit.KindStarted, 0, c.step, uint32(c.err))
		var failed *Error
		s := receive1(t, got)
		if !errors.As(s.err, &failed) || failed.Failure != c.want || c.text != "" && failed.Text != c.text {
			t.Errorf("step %d, %v: %#v", c.step, c.err, s.err)
		}
	}
}

func TestUnknownUserIsAFailureOfItsOwn(t *testing.T) {
	i, _ := fakeInit(t)
	var failed *Error
	_, err := i.Spawn(context.Background(), Request{User: "no such user", Cmd: "x"}, [3]int{0, 1, 2})
	if !errors.As(err, &failed) || failed.Failure != FailureUser || failed.Text != "invalid username: 'no such user'" {
		t.Errorf("error %#v", err)
	}
}

func TestWhatNobodyAskedForIsIgnored(t *testing.T) {
	i, peer := fakeInit(t)
	for n := range uint32(100) {
		i.adopt([3]uint32{n})
	}
	got := spawnAsync(i)
	heard(t, peer)
	say(t, peer, bareinit.KindStarted, 500, 0, 0)
	if s := receive1(t, got); s.err != nil || s.child.PID != 500 {
		t.Errorf("error %v; want pid 500", s.err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.children) != 1 {
		t.Errorf("%d children are known, want 1", len(i.children))
	}
}

func TestNonsenseEndsInitAndItsProcesses(t *testing.T) {
	for name, frame := range map[string][]byte{
		"unknown kind": appendFrame(nil, 99, nil),
		"too long":     append(binary.LittleEndian.AppendUint32(nil, 16), bareinit.KindExited),
		"no words":     appendFrame(nil, bareinit.KindExited, []byte{1, 2}),
	} {
		t.Run(name, func(t *testing.T) {
			i, peer := fakeInit(t)
			got := spawnAsync(i)
			heard(t, peer)
			say(t, peer, bareinit.KindStarted, 5, 0, 0)
			s := receive1(t, got)
			peer.Write(frame)
			receive1(t, s.child.Done())
			if st := s.child.Status(); !st.Signaled() || st.Signal() != unix.SIGKILL {
				t.Errorf("status %v, want killed", st)
			}
			receive1(t, i.Done())
			if i.Alive() {
				t.Error("init is alive")
			}
		})
	}
}

func TestSpawnFailsWhenInitDies(t *testing.T) {
	i, peer := fakeInit(t)
	got := spawnAsync(i)
	heard(t, peer)
	i.Kill()
	if s := receive1(t, got); !errors.Is(s.err, ErrInitDied) {
		t.Errorf("error %v, want %v", s.err, ErrInitDied)
	}
	if _, err := i.Spawn(context.Background(), Request{User: "root", Cmd: "x"}, [3]int{0, 1, 2}); !errors.Is(err, ErrInitDied) {
		t.Errorf("afterwards %v, want %v", err, ErrInitDied)
	}
}

func TestDescriptorsOfADeadInitElsewhereDoNotHoldTheAgent(t *testing.T) {
	i, peer := fakeInit(t)
	_ = peer // stays open, as if users' root had taken it
	i.Kill()
	receive1(t, i.Done())
}

func TestSignalNamesPidAndSignal(t *testing.T) {
	i, peer := fakeInit(t)
	if err := i.Signal(77, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	kind, payload := heard(t, peer)
	if kind != bareinit.KindSignal || binary.LittleEndian.Uint32(payload) != 77 || binary.LittleEndian.Uint32(payload[4:]) != uint32(unix.SIGTERM) {
		t.Errorf("frame %d %v", kind, payload)
	}
}

func TestRequestThatIsTooLongIsRefused(t *testing.T) {
	i, _ := fakeInit(t)
	var failed *Error
	_, err := i.Spawn(context.Background(), Request{User: "root", Cmd: strings.Repeat("x", bareinit.MaxRequest)}, [3]int{0, 1, 2})
	if !errors.As(err, &failed) || failed.Failure != FailureCommand {
		t.Errorf("error %v", err)
	}
}

func TestInitIsLateUntilItAnswers(t *testing.T) {
	i, peer := fakeInit(t)
	if i.Late() {
		t.Error("it is late before it was asked for anything")
	}
	got := spawnAsync(i)
	heard(t, peer)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !i.Late(); <-tick.C {
		if time.Since(began) > 10*nudge {
			t.Fatalf("it owes an answer since %v and is not late", time.Since(began))
		}
	}
	say(t, peer, bareinit.KindStarted, 42, 0, 0)
	if s := receive1(t, got); s.err != nil {
		t.Fatal(s.err)
	}
	if i.Late() {
		t.Error("it is late although it has answered")
	}
}
