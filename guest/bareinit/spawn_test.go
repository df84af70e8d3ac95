package bareinit

import (
	"encoding/binary"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// peer makes the test the agent: it returns its end of the socket.
func peer(t *testing.T) *os.File {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	old := socket
	socket = uintptr(pair[1])
	t.Cleanup(func() {
		unix.Close(pair[1])
		socket = old
	})
	f := os.NewFile(uintptr(pair[0]), "agent")
	t.Cleanup(func() { f.Close() })
	return f
}

// answered reads one frame of init.
func answered(t *testing.T, f *os.File) (kind byte, words []uint32) {
	t.Helper()
	header := make([]byte, HeaderSize)
	if _, err := io.ReadFull(f, header); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.LittleEndian.Uint32(header))
	if _, err := io.ReadFull(f, body); err != nil {
		t.Fatal(err)
	}
	for ; len(body) > 0; body = body[4:] {
		words = append(words, binary.LittleEndian.Uint32(body))
	}
	return header[4], words
}

// ask sends a frame with our /dev/null as input and the given file as output,
// and has init handle it.
func ask(t *testing.T, f *os.File, kind byte, body []byte, output *os.File) {
	t.Helper()
	frame := append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), kind), body...)
	var rights []byte
	if output != nil {
		null, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		rights = unix.UnixRights(int(null.Fd()), int(output.Fd()), int(output.Fd()))
	}
	if err := unix.Sendmsg(int(f.Fd()), frame, rights, nil, 0); err != nil {
		t.Fatal(err)
	}
	receive()
}

func self() [RequestWords]uint32 {
	return [RequestWords]uint32{0, uint32(os.Getuid()), uint32(os.Getgid()), 0, 2, 3, 1}
}

// exits takes the end of the process that a test has started.
func exits(t *testing.T, f *os.File, pid uint32) unix.WaitStatus {
	t.Helper()
	waitFlags = 0 // wait for it
	reap()
	waitFlags = unix.WNOHANG
	kind, words := answered(t, f)
	if kind != KindExited || words[0] != pid {
		t.Fatalf("frame %d %v, want the exit of %d", kind, words, pid)
	}
	return unix.WaitStatus(words[1])
}

func TestProcessIsStartedAndReaped(t *testing.T) {
	f := peer(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dir := t.TempDir()
	ask(t, f, KindSpawn, encode(self(), nil, "", dir, "/nonexistent/sh", "/bin/sh", "sh", "-c", "pwd; echo $K; id -u; exit 7", "K=value"), w)
	w.Close()
	kind, words := answered(t, f)
	if os.Getuid() != 0 { // only root may set its groups
		if words[1] != StepUser || words[2] != uint32(unix.EPERM) {
			t.Errorf("frame %d %v", kind, words)
		}
		return
	}
	if kind != KindStarted || words[1] != 0 || !isStarted(uintptr(words[0])) {
		t.Fatalf("frame %d %v, want a start", kind, words)
	}
	got, err := io.ReadAll(r)
	if want := dir + "\nvalue\n0\n"; err != nil || string(got) != want {
		t.Errorf("output %q, %v; want %q", got, err, want)
	}
	if status := exits(t, f, words[0]); status.ExitStatus() != 7 {
		t.Errorf("status %v, want 7", status)
	}
	if isStarted(uintptr(words[0])) {
		t.Error("the process is still known")
	}
}

func TestFailureNamesItsStep(t *testing.T) {
	f := peer(t)
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	words := self()
	optional := words
	optional[WordFlags] = FlagCwdOptional
	for name, c := range map[string]struct {
		body   []byte
		output *os.File
		step   uint32
		errno  unix.Errno
	}{
		"no program":     {encode(words, nil, "", "/", "/none", "/nor/this", "a", "b", "c", "d"), null, StepExec, unix.ENOENT},
		"not executable": {encode(words, nil, "", "/", "/etc/passwd", "/none", "a", "b", "c", "d"), null, StepExec, unix.EACCES},
		"no directory":   {encode(words, nil, "", "/none", "/bin/true", "", "a", "b", "c", "d"), null, StepCwd, unix.ENOENT},
		"or the root":    {encode(optional, nil, "", "/none", "none", "", "a", "b", "c", "d"), null, StepExec, unix.ENOENT},
		"no group":       {encode(words, nil, "/none", "/", "/bin/true", "", "a", "b", "c", "d"), null, StepCgroup, unix.ENOENT},
		"no descriptors": {encode(words, nil, "", "/", "/bin/true", "", "a", "b", "c", "d"), nil, StepForm, unix.EINVAL},
		"nonsense":       {[]byte("nonsense"), null, StepForm, unix.EINVAL},
	} {
		ask(t, f, KindSpawn, c.body, c.output)
		kind, got := answered(t, f)
		if os.Getuid() != 0 && c.step > StepUser { // only root may set its groups
			c.step, c.errno = StepUser, unix.EPERM
		}
		if kind != KindStarted || got[0] != 0 || got[1] != c.step || got[2] != uint32(c.errno) {
			t.Errorf("%s: frame %d %v, want step %d, errno %d", name, kind, got, c.step, c.errno)
		}
	}
}

func TestPassedDescriptorsAreClosed(t *testing.T) {
	f := peer(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ask(t, f, KindSpawn, []byte("nonsense"), w)
	w.Close()
	answered(t, f)
	if b, err := io.ReadAll(r); err != nil || len(b) != 0 { // would wait for ever
		t.Errorf("%q, %v", b, err)
	}
}

func TestOnlyStartedProcessesAreSignalled(t *testing.T) {
	f := peer(t)
	victim, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	body := binary.LittleEndian.AppendUint32(nil, uint32(victim.Pid))
	body = binary.LittleEndian.AppendUint32(body, uint32(unix.SIGKILL))
	ask(t, f, KindSignal, body, nil)
	if err := victim.Signal(unix.SIGTERM); err != nil {
		t.Errorf("a process that the agent did not ask for is gone: %v", err)
	}
	state, err := victim.Wait()
	if err != nil || state.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGTERM {
		t.Errorf("it ended as %v, %v", state, err)
	}
}

func TestLongRequestLeavesNoMemoryBehind(t *testing.T) {
	f := peer(t)
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	body := encode(self(), nil, "", "/", "/none", "/none", "a", strings.Repeat("x", 1<<20), "c", "d")
	done := make(chan struct{})
	go func() { // more than the socket holds
		defer close(done)
		frame := append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), KindSpawn), body...)
		rights := unix.UnixRights(int(null.Fd()), int(null.Fd()), int(null.Fd()))
		n, err := unix.SendmsgN(int(f.Fd()), frame, rights, nil, 0)
		if err == nil {
			_, err = f.Write(frame[n:])
		}
		if err != nil {
			t.Error(err)
		}
	}()
	receive()
	<-done
	if _, got := answered(t, f); got[1] != StepExec && os.Getuid() == 0 {
		t.Errorf("answer %v", got)
	}
	if payload[512<<10] != 0 {
		t.Error("the pages of a long request are kept")
	}
}
