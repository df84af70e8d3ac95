// Package asuser runs parts of the agent as a user of the sandbox.
//
// File requests name paths that users control. The agent must not resolve them
// with its own rights or in its own mount namespace: a symbolic link could lead
// into its /proc or its own file system. So each piece of work gets an operating
// system thread of its own that enters the users' mount namespace, takes the
// user's ids and gives up every other right for good; the thread ends with the
// work. A thread stays in the agent's PID namespace, where users can neither see
// nor signal nor trace it, and costs a fraction of starting a helper process.
//
// Descriptors that the work opens may be used by any thread afterwards: rights
// were checked when they were opened.
package asuser

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"cubesandbox/guest/bareinit"
	"cubesandbox/guest/users"

	"golang.org/x/sys/unix"
)

// maxThreads bounds how many pieces of work run at a time.
const maxThreads = 32

// Runner runs work in the users' mount namespace.
type Runner struct {
	namespace func(context.Context) (fd int, release func(), err error)
	slots     chan struct{}
}

// NewRunner returns a Runner. namespace returns a descriptor of the current
// users' mount namespace and what to call when it is no longer needed.
func NewRunner(namespace func(context.Context) (fd int, release func(), err error)) *Runner {
	return &Runner{namespace, make(chan struct{}, maxThreads)}
}

// Do runs f as the user of that name, and returns its error. f must not start
// goroutines that rely on the user's rights, and must not wait for anything that
// users decide. Unknown names give users.ErrUnknown. ctx bounds the wait for others'
// work to end, not the work.
func (r *Runner) Do(ctx context.Context, name string, f func(users.User) error) error {
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer func() { <-r.slots }()
	fd, release, err := r.namespace(ctx)
	if err != nil {
		return err
	}
	defer release()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is of no use to others
		completed := false
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("file operation failed: %v", p)
			} else if !completed {
				done <- errors.New("file operation ended early")
			}
		}()
		u, err := become(fd, name)
		if err == nil {
			err = f(u)
		}
		completed = true
		done <- err
	}()
	return <-done
}

// enter waits for a slot.
func (r *Runner) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err // select could take a slot all the same
	}
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d other file operations have not ended: %w", maxThreads, ctx.Err())
	}
}

// become turns the calling thread into one of the user's.
func become(namespace int, name string) (users.User, error) {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return users.User{}, fmt.Errorf("unshare the thread's directories: %w", err)
	}
	if err := unix.Setns(namespace, unix.CLONE_NEWNS); err != nil {
		return users.User{}, fmt.Errorf("enter the users' mount namespace: %w", err)
	}
	u, err := users.Lookup(name)
	if err != nil {
		return u, err
	}
	unix.Umask(0o022)
	return u, take(u)
}

// take gives the calling thread the user's ids. The functions of package syscall
// would change all threads.
func take(u users.User) error {
	var groups unsafe.Pointer
	if len(u.Groups) > 0 {
		groups = unsafe.Pointer(&u.Groups[0])
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), uintptr(groups), 0); e != 0 {
		return fmt.Errorf("set groups: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(u.GID), uintptr(u.GID), uintptr(u.GID)); e != 0 {
		return fmt.Errorf("set group id: %w", e)
	}
	if u.UID != 0 {
		// Leaving uid 0 takes all capabilities from the thread.
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(u.UID), uintptr(u.UID), uintptr(u.UID)); e != 0 {
			return fmt.Errorf("set user id: %w", e)
		}
		return nil
	}
	if err := setCapabilities(bareinit.UserCapabilities); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	return nil
}

func setCapabilities(set uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(set), Permitted: uint32(set)},
		{Effective: uint32(set >> 32), Permitted: uint32(set >> 32)},
	}
	return unix.Capset(&header, &data[0])
}
