package template

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// contained runs a program in PID and mount namespaces of its own, so that all
// that it starts and mounts is gone when it ends, and when we end. Each line of
// its output goes to line. An error carries the last lines.
func contained(ctx context.Context, env []string, line func(string), name string, args ...string) error {
	// --kill-child and our own Pdeathsig make a chain: we die, unshare dies, and
	// with process 1 of the namespace all others.
	wrapped := append([]string{"--pid", "--fork", "--mount", "--mount-proc", "--kill-child=SIGKILL", "--", name}, args...)
	cmd := exec.CommandContext(ctx, "unshare", wrapped...)
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out := &lines{each: line}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 10 * time.Second

	// The death signal belongs to the thread that starts the program.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", name, ctx.Err())
		}
		return fmt.Errorf("%s: %w; its last words:\n%s", name, err, out.tail())
	}
	return nil
}

const (
	tailLines   = 25
	longestLine = 4096 // bytes; what is longer is cut
)

// lines cuts a stream into lines and keeps the last ones.
type lines struct {
	each    func(string)
	partial bytes.Buffer
	last    []string
}

func (l *lines) Write(p []byte) (int, error) {
	for _, c := range p {
		if c == '\n' {
			l.flush()
		} else if l.partial.Len() < longestLine {
			l.partial.WriteByte(c)
		}
	}
	return len(p), nil
}

func (l *lines) flush() {
	text := strings.TrimRight(l.partial.String(), "\r ")
	l.partial.Reset()
	if l.last = append(l.last, text); len(l.last) > tailLines {
		l.last = l.last[1:]
	}
	if l.each != nil {
		l.each(text)
	}
}

func (l *lines) tail() string {
	if l.partial.Len() > 0 {
		l.flush()
	}
	return "    " + strings.Join(l.last, "\n    ")
}

// need reports a missing program with the package that has it.
func need(program, pkg string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%s is not installed; make up installs it, or: apt-get install %s", program, pkg)
	}
	return nil
}

// asRoot reports that we are not root.
func asRoot() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("making a template needs root: it creates files of other users; run it as root")
	}
	return nil
}
