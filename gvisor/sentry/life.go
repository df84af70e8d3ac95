package sentry

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// life is one sentry.
type life struct {
	dir       string // its directory below the keeper's
	group     *group
	filestore *os.File // a duplicate, to measure it; nil after adoption
	pidfd     *os.File
	gone      chan struct{}  // closed when the process has ended and is reaped
	booting   sync.WaitGroup // what boot is doing; whoever ends a life waits for it
	released  chan struct{}  // closed when nothing of it is left outside of the keeper

	op sync.Mutex // one control operation at a time; wait-restore aside

	mu     sync.Mutex // guards the following
	nic    *os.File   // a duplicate of the host's end; nil before start, or when lost
	rec    record
	ending cube.DeathReason // set before we kill
}

// record is what a keeper writes down of a life, so that the next one can take it up.
type record struct {
	keeperapi.Life
	// Start tells the process from a later one with the same pid.
	Start uint64 `json:"start"`
	// Control is the path of the sentry's control socket.
	Control string `json:"control"`
}

// view is the life as a client sees it.
func (l *life) view() keeperapi.Life {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.rec.Life
	v.Detached = l.nic == nil && (v.State == keeperapi.StateRunning || v.State == keeperapi.StatePaused)
	return v
}

// update changes the record and writes it.
func (l *life) update(change func(*record)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.rec)
	return writeRecord(l.dir, l.rec)
}

func writeRecord(dir string, r record) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, recordFile+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, recordFile))
}

// need returns an error unless the life is in one of the states.
func (l *life) need(states ...keeperapi.State) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range states {
		if l.rec.State == s {
			return nil
		}
	}
	if l.rec.State == keeperapi.StateDead {
		return l.deadError()
	}
	return fdrpc.Errorf(keeperapi.CodeState, "life %s is %s", l.rec.Life.Life, l.rec.State)
}

// deadError is called with mu held.
func (l *life) deadError() *fdrpc.Error {
	d := l.rec.Death
	detail, _ := json.Marshal(d)
	return &fdrpc.Error{Code: keeperapi.CodeDead, Message: fmt.Sprintf("life %s is dead: %s: %s", l.rec.Life.Life, d.Reason, d.Detail), Detail: detail}
}

// call does one request on the sentry's control socket. When the sentry ends
// meanwhile, the error says how.
func (l *life) call(method string, arg, result any) error {
	err := l.tryCall(method, arg, result)
	if err == nil {
		return nil
	}
	// A sentry that fails badly ends right after, or instead of, its answer.
	select {
	case <-l.gone:
	case <-time.After(l.grace(err)):
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadError()
}

// grace is how long to wait for the end of a sentry after an error: long when the
// connection broke, which is how its end looks from here, hardly when it answered.
func (l *life) grace(err error) time.Duration {
	var remote urpc.RemoteError
	if errors.As(err, &remote) {
		return 20 * time.Millisecond
	}
	return 5 * time.Second
}

func (l *life) tryCall(method string, arg, result any) error {
	conn, err := unet.Connect(l.rec.Control, false)
	if err != nil {
		return fmt.Errorf("connect to the sentry: %w", err)
	}
	c := urpc.NewClient(conn)
	defer c.Close()
	return c.Call(method, arg, result)
}

// kill ends the process and everything in its group, and returns when nothing is left.
func (l *life) kill(reason cube.DeathReason) error {
	if isGone(l) {
		return nil
	}
	l.mu.Lock()
	if l.ending == "" {
		l.ending = reason
	}
	l.mu.Unlock()
	err := l.group.kill()
	if l.pidfd != nil {
		// After its end the descriptor is closed; gone tells then.
		unix.PidfdSendSignal(int(l.pidfd.Fd()), unix.SIGKILL, nil, 0)
	}
	select {
	case <-l.gone:
	case <-time.After(10 * time.Second):
		return errors.Join(err, fmt.Errorf("sentry %d does not end", l.rec.PID))
	}
	return err
}

// release frees what a dead life holds outside of this process.
func (l *life) release() error {
	err := l.group.waitEmpty(5 * time.Second)
	err = errors.Join(err, l.group.remove())
	for _, f := range []*os.File{l.filestore, l.nic, l.pidfd} {
		if f != nil {
			f.Close()
		}
	}
	if rerr := os.Remove(l.rec.Control); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}
