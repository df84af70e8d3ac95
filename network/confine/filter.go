package confine

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp"
)

// Seal makes the process unreadable for others and lets it do from now on only
// the system calls below; any other ends it.
func Seal() error {
	// With the first timer Go makes its poller, which must be there before.
	time.AfterFunc(time.Hour, func() {}).Stop()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("confine: dumpable: %w", err)
	}
	p := seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: allowed(), Action: seccomp.Allow}},
		Options: seccomp.ProgramOptions{
			DefaultAction: seccomp.KillProcess,
			BadArchAction: seccomp.KillProcess,
			HotSyscalls:   []uintptr{unix.SYS_READ, unix.SYS_WRITEV, unix.SYS_FUTEX, unix.SYS_RECVFROM, unix.SYS_WRITE, unix.SYS_EPOLL_PWAIT},
		},
	}
	program, _, err := p.Build()
	if err != nil {
		return fmt.Errorf("confine: filter: %w", err)
	}
	if err := seccomp.SetFilter(program); err != nil {
		return fmt.Errorf("confine: filter: %w", err)
	}
	return nil
}

// Short names for the rules.
type (
	args = seccomp.PerArg
	eq   = seccomp.EqualTo
)

var always = seccomp.MatchAll{}

// allowed holds what is needed to move bytes between descriptors that we were
// given. None makes a socket of another family, opens a file, starts a program,
// maps executable memory or looks at another process.
func allowed() seccomp.SyscallRules {
	return seccomp.MakeSyscallRules(map[uintptr]seccomp.SyscallRule{
		// Bytes and descriptors.
		unix.SYS_READ:     always,
		unix.SYS_WRITE:    always,
		unix.SYS_WRITEV:   always,
		unix.SYS_RECVFROM: always,
		unix.SYS_RECVMSG:  always,
		unix.SYS_SENDMSG:  always,
		unix.SYS_SHUTDOWN: always,
		unix.SYS_CLOSE:    always,
		unix.SYS_FSTAT:    always,
		unix.SYS_ACCEPT4:  always,
		unix.SYS_FCNTL: seccomp.Or{
			args{seccomp.AnyValue{}, eq(unix.F_GETFL)},
			args{seccomp.AnyValue{}, eq(unix.F_SETFL)},
			args{seccomp.AnyValue{}, eq(unix.F_SETFD)},
			args{seccomp.AnyValue{}, eq(unix.F_DUPFD_CLOEXEC)},
		},
		unix.SYS_SOCKETPAIR: args{
			eq(unix.AF_UNIX), eq(unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK), eq(0),
		},
		unix.SYS_GETSOCKNAME: always,
		unix.SYS_GETSOCKOPT:  args{seccomp.AnyValue{}, eq(unix.SOL_SOCKET)},
		unix.SYS_SETSOCKOPT: seccomp.Or{
			args{seccomp.AnyValue{}, eq(unix.SOL_SOCKET), eq(unix.SO_PEEK_OFF)},
			args{seccomp.AnyValue{}, eq(unix.SOL_SOCKET), eq(unix.SO_SNDBUF)},
			args{seccomp.AnyValue{}, eq(unix.SOL_SOCKET), eq(unix.SO_RCVBUF)},
		},
		unix.SYS_IOCTL: args{seccomp.AnyValue{}, eq(unix.TIOCINQ)},
		unix.SYS_PPOLL: always,

		// Go's runtime: poller, memory, threads, signals, time.
		unix.SYS_EPOLL_CTL:   always,
		unix.SYS_EPOLL_PWAIT: always,
		unix.SYS_MMAP: args{
			seccomp.AnyValue{}, seccomp.AnyValue{}, seccomp.MaskedEqual(unix.PROT_EXEC, 0),
			seccomp.MaskedEqual(unix.MAP_ANONYMOUS, unix.MAP_ANONYMOUS),
		},
		unix.SYS_MUNMAP:  always,
		unix.SYS_MADVISE: always,
		unix.SYS_PRCTL:   args{eq(unix.PR_SET_VMA), eq(unix.PR_SET_VMA_ANON_NAME)},
		unix.SYS_FUTEX:   always,
		unix.SYS_CLONE: args{seccomp.MaskedEqual(
			unix.CLONE_THREAD|unix.CLONE_VM|unix.CLONE_FILES|namespaces,
			unix.CLONE_THREAD|unix.CLONE_VM|unix.CLONE_FILES)},
		unix.SYS_SIGALTSTACK:       always,
		unix.SYS_RT_SIGPROCMASK:    always,
		unix.SYS_RT_SIGACTION:      always,
		unix.SYS_RT_SIGRETURN:      always,
		unix.SYS_TGKILL:            args{eq(unix.Getpid())},
		unix.SYS_GETPID:            always,
		unix.SYS_GETTID:            always,
		unix.SYS_SCHED_YIELD:       always,
		unix.SYS_SCHED_GETAFFINITY: always,
		unix.SYS_NANOSLEEP:         always,
		unix.SYS_CLOCK_GETTIME:     always,
		unix.SYS_GETRANDOM:         always,
		unix.SYS_RESTART_SYSCALL:   always,
		unix.SYS_EXIT:              always,
		unix.SYS_EXIT_GROUP:        always,
	})
}

const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS |
	unix.CLONE_NEWPID | unix.CLONE_NEWUSER | unix.CLONE_NEWCGROUP
