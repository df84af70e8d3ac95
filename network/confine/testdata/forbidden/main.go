// Command forbidden confines itself and then makes the system call that its
// argument names. It exits with 0 when that was allowed and with 2 when it could
// not be confined.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"cubesandbox/network/confine"
)

const id = 64902

var null = unsafe.Pointer(&[]byte("/\x00")[0])

var calls = map[string]func(){
	"nothing": func() {},
	"go on":   goOn,
	"execve": func() {
		unix.RawSyscall(unix.SYS_EXECVE, uintptr(null), 0, 0)
	},
	"open":          func() { os.Open("/") },
	"stat":          func() { os.Stat("/") },
	"inet socket":   func() { unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0) },
	"unix socket":   func() { unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0) },
	"packet socket": func() { unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0) },
	"seqpacket":     func() { unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0) },
	"connect":       func() { unix.Connect(0, &unix.SockaddrUnix{Name: "/x"}) },
	"kill":          func() { unix.Kill(1, 0) },
	"tgkill":        func() { unix.Tgkill(1, 1, 0) },
	"ptrace":        func() { unix.PtraceAttach(1) },
	"fork":          func() { unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0) },
	"clone3":        func() { unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0) },
	"setuid":        func() { unix.RawSyscall(unix.SYS_SETUID, 0, 0, 0) },
	"unshare":       func() { unix.Unshare(unix.CLONE_NEWUSER) },
	"mount":         func() { unix.Mount("", "/", "", 0, "") },
	"map code":      func() { unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE) },
	"map a file":    func() { unix.Mmap(0, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE) },
	"mprotect":      func() { unix.Mprotect(make([]byte, 4096), unix.PROT_READ) },
	"setsockopt":    func() { unix.SetsockoptInt(0, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1) },
	"ioctl":         func() { unix.IoctlGetInt(0, unix.TIOCOUTQ) },
	"dumpable":      func() { unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) },
	"prlimit":       func() { unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, nil) },
}

// goOn is what a Go program does in a long life.
func goOn() {
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			runtime.LockOSThread() // a thread begins and ends
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = byte(i)
			}
			t := time.NewTimer(time.Millisecond)
			<-t.C
		})
	}
	wg.Wait()
	debug.FreeOSMemory()
}

func main() {
	call, ok := calls[os.Args[1]]
	if !ok {
		fail(fmt.Errorf("no call %q", os.Args[1]))
	}
	if os.Getuid() == 0 {
		fail(confine.Drop(id, id))
	}
	fail(confine.Check(id, id))
	fail(confine.Seal())
	call()
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
