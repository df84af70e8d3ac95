package sentry

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// The gate is how a sentry gets into cgroups that clone cannot put it into
// (version 1): its first stage connects to a socket, the keeper learns the pid
// from the kernel, moves it, answers one byte, and only then is the sentry
// executed. No page of it is charged to anybody else.

const gateName = "gate"

// passGate waits until the keeper has placed this process. Where there is no
// gate there is nothing to wait for.
func passGate(root string) error {
	c, err := net.Dial("unix", filepath.Join(root, gateName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("gate: %w", err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("gate: the keeper did not place this process: %w", err)
	}
	return nil
}

// gate is the keeper's end.
type gate struct {
	l     *net.UnixListener
	place func(pid int, life string) error
	wg    sync.WaitGroup
}

// openGate listens at root/gate. Anybody may connect; only our own children that
// boot a life are let through.
func openGate(root string, place func(pid int, life string) error) (*gate, error) {
	path := filepath.Join(root, gateName)
	os.Remove(path)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o666); err != nil {
		l.Close()
		return nil, err
	}
	g := &gate{l: l, place: place}
	g.wg.Go(g.serve)
	return g, nil
}

func (g *gate) Close() { g.l.Close(); g.wg.Wait() }

func (g *gate) serve() {
	for {
		c, err := g.l.AcceptUnix()
		if err != nil {
			return
		}
		g.wg.Go(func() {
			defer c.Close()
			if pid, life, err := gatePeer(c); err == nil && g.place(pid, life) == nil {
				c.Write([]byte{1})
			}
		})
	}
}

// gatePeer returns the pid of the peer and the life that it boots: the last
// argument of its command line. It must be a child of this process.
func gatePeer(c *net.UnixConn) (pid int, life string, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, "", err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || cerr != nil {
		return 0, "", errors.Join(err, cerr)
	}
	pid = int(cred.Pid)
	st, err := readStat(pid)
	if err != nil {
		return 0, "", err
	}
	if st.ppid != os.Getpid() {
		return 0, "", fmt.Errorf("process %d is not ours", pid)
	}
	args, err := readCmdline(pid)
	if err != nil || len(args) == 0 {
		return 0, "", fmt.Errorf("process %d: no command line: %v", pid, err)
	}
	return pid, args[len(args)-1], nil
}
