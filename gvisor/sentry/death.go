package sentry

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// watchDeath waits for the end of the process, without a thread of its own, and
// records how it was. It returns when the life is dead and reaped.
func (l *life) watchDeath(pidfd *os.File, pid int, child bool) {
	err := waitReadable(pidfd)
	var ws unix.WaitStatus
	if child {
		ws, err = reap(pid)
	}
	d := l.death(child && err == nil, ws)
	l.note(func(r *record) {
		r.State = keeperapi.StateDead
		r.Death = &d
	})
	close(l.gone)
}

// death finds the reason.
func (l *life) death(known bool, ws unix.WaitStatus) cube.Death {
	d := cube.Death{At: time.Now()}
	l.mu.Lock()
	ending, limits := l.ending, l.rec.Limits
	l.mu.Unlock()
	words := lastWords(l.dir)
	switch {
	case ending != "":
		d.Reason = ending
	case l.group.oomKills() > 0:
		d.Reason = cube.DeathOOM
		d.Detail = fmt.Sprintf("the host's limit of %d MiB was reached", hostLimit(limits)>>20)
	case !known:
		d.Reason = cube.DeathUnknown
		d.Detail = "it ended while another keeper was its parent"
	case ws.Signaled():
		d.Reason = cube.DeathSignal
		d.Detail = "signal: " + ws.Signal().String()
	case words != "":
		d.Reason = cube.DeathCrash
		d.Detail = words
	default:
		d.Reason = cube.DeathExit
		d.Detail = fmt.Sprintf("process 1 inside ended; the sentry's exit status is %d", ws.ExitStatus())
	}
	return d
}

// lastWords is the first line of a panic, or the last fatal line of the log.
func lastWords(dir string) string {
	if b := readPart(filepath.Join(dir, panicFile), false); len(bytes.TrimSpace(b)) > 0 {
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
				return clip(line)
			}
		}
		line, _, _ := strings.Cut(string(b), "\n")
		return clip(line)
	}
	b := readPart(filepath.Join(dir, logFile), true)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Contains(lines[i], "FATAL") {
			return clip(lines[i])
		}
	}
	return ""
}

// wordBytes is how much of a log is looked at. A panic begins with its reason, a log
// ends with it.
const wordBytes = 64 << 10

// readPart returns the first, or the last, wordBytes of a file that may have any size.
func readPart(path string, last bool) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && last && fi.Size() > wordBytes {
		f.Seek(-wordBytes, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, wordBytes))
	return b
}

// clip bounds a line that the guest may have had a hand in.
func clip(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "?")
	if len(s) > 400 {
		s = s[:400]
	}
	return s
}
