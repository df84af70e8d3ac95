package footprint_test

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cubesandbox/internal/footprint"
)

// size is far above what the test itself takes and gives back meanwhile.
const size = 64 << 20

func of(t *testing.T, pids ...int) footprint.Footprint {
	t.Helper()
	f, err := footprint.Of(pids...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// near reports whether a number of bytes is so large, but for what the test itself takes.
func near(got, want int64) bool { return got > want-size/4 && got < want+size/4 }

func TestAMemoryFileIsCountedOnceMappedOrNot(t *testing.T) {
	before := of(t, os.Getpid())
	fd, err := unix.MemfdCreate("cube-footprint", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Fallocate(fd, 0, 0, size); err != nil {
		t.Fatal(err)
	}
	unmapped := of(t, os.Getpid())
	if got := unmapped.Total() - before.Total(); !near(got, size) {
		t.Errorf("a file of %d bytes that nobody maps: %d more", size, got)
	}
	var views [2][]byte
	for i := range views {
		if views[i], err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(views[i])
	}
	mapped := of(t, os.Getpid())
	if got := mapped.Total() - before.Total(); !near(got, size) {
		t.Errorf("mapped twice: %d more, want %d", got, size)
	}
	if got := mapped.Shmem - unmapped.Shmem; !near(got, size) {
		t.Errorf("mapped twice: %d more of it are mapped, want %d", got, size)
	}
}

func TestMemoryOfItsOwnIsCounted(t *testing.T) {
	before := of(t, os.Getpid())
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	if got := of(t, os.Getpid()).Anon - before.Anon; !near(got, size) {
		t.Errorf("%d bytes more, want %d", got, size)
	}
}

// TestOneAddressSpaceIsCountedOnce: a thread has a number too, and can be asked for like a
// process that shares this one's address space, as gVisor's stubs share theirs.
func TestOneAddressSpaceIsCountedOnce(t *testing.T) {
	threads := make(chan int)
	end := make(chan struct{})
	defer close(end)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with it
		threads <- unix.Gettid()
		<-end
	}()
	thread := <-threads
	if thread == os.Getpid() {
		thread = unix.Gettid()
	}
	alone, both := of(t, os.Getpid()), of(t, os.Getpid(), thread)
	if alone.Spaces != 1 || both.Spaces != 1 {
		t.Errorf("alone %+v, with a thread %+v: want one address space", alone, both)
	}
	if !near(size+both.Total()-alone.Total(), size) {
		t.Errorf("alone %d bytes, with a thread %d", alone.Total(), both.Total())
	}
}

func TestDescendantsAreCountedAndTheDeadAreNot(t *testing.T) {
	before := of(t, os.Getpid())
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	with := of(t, os.Getpid())
	if with.Spaces != before.Spaces+1 {
		t.Errorf("with a child: %d address spaces, want %d", with.Spaces, before.Spaces+1)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // it was killed
	if after := of(t, os.Getpid()); after.Spaces != before.Spaces {
		t.Errorf("without it: %d address spaces, want %d", after.Spaces, before.Spaces)
	}
	if none := of(t, cmd.Process.Pid); none.Spaces != 0 || none.Total() != 0 {
		t.Errorf("of one that is dead: %+v, want nothing", none)
	}
}
