package sentry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// life is one sentry.
type life struct {
	id       string
	dir      string // its directory below the keeper's
	group    *group
	gone     chan struct{}   // closed when the process has ended and is reaped
	booting  sync.WaitGroup  // what boot is doing; whoever ends a life waits for it
	released chan struct{}   // closed when nothing of it is left outside of the keeper
	ctx      context.Context // ends when the process is being killed
	cancel   context.CancelFunc

	op sync.Mutex // one control operation at a time; wait-restore aside

	mu        sync.Mutex // guards the following
	filestore *os.File   // a duplicate, to measure it; nil where it is not found
	pidfd     *os.File
	nic       *os.File // a duplicate of the host's end; nil before start, or when lost
	rec       record
	ending    cube.DeathReason // set before we kill
}

// record is what a keeper writes down of a life, so that the next one can take it up.
type record struct {
	keeperapi.Life
	// Start tells the process from a later one with the same pid.
	Start uint64 `json:"start"`
	// Control is the path of the sentry's control socket.
	Control string `json:"control"`
	// Turning: a pause or resume has been asked for, and the answer was not seen.
	Turning bool `json:"turning,omitempty"`
	// Unsure: gVisor may have counted more stops than we have asked for, so that a
	// resume may not be enough. Only a new life is free of them.
	Unsure bool `json:"unsure,omitempty"`
	// Filestore is the file behind the writable layer.
	Filestore fileID `json:"filestore,omitzero"`
}

func (k *Keeper) newLife(id string) *life {
	l := &life{
		id: id, dir: filepath.Join(k.livesDir(), id), group: &group{h: k.cgroups, life: id},
		gone: make(chan struct{}), released: make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// controlSocket is where gVisor puts the control socket of a life.
func (k *Keeper) controlSocket(id string) string {
	return filepath.Join(k.sentryDir(), "runsc-"+id+".sock")
}

// view is the life as a client sees it.
func (l *life) view() keeperapi.Life {
	r := l.record()
	v := r.Life
	v.Detached = (l.hostNIC() == nil || r.Unsure || r.Turning) && (v.State == keeperapi.StateRunning || v.State == keeperapi.StatePaused)
	return v
}

func (l *life) record() record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec
}

func (l *life) hostNIC() *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nic
}

// update writes a change of the record, and makes it if it could be written.
func (l *life) update(change func(*record)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rec
	change(&r)
	if err := writeRecord(l.dir, r); err != nil {
		return err
	}
	l.rec = r
	return nil
}

// note changes the record to what has already happened, written or not.
func (l *life) note(change func(*record)) error {
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
	r := l.record()
	for _, s := range states {
		if r.State == s {
			return nil
		}
	}
	if r.State == keeperapi.StateDead {
		return deadError(r)
	}
	return fdrpc.Errorf(keeperapi.CodeState, "life %s is %s", l.id, r.State)
}

func deadError(r record) *fdrpc.Error {
	detail, _ := json.Marshal(r.Death)
	return &fdrpc.Error{Code: keeperapi.CodeDead, Message: fmt.Sprintf("life %s is dead: %s: %s", r.Life.Life, r.Death.Reason, r.Death.Detail), Detail: detail}
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
	pidfd, pid := l.pidfd, l.rec.PID
	l.mu.Unlock()
	err := l.group.kill()
	if pidfd != nil {
		signalProcess(pidfd, unix.SIGKILL) // it may have ended; gone tells
	}
	l.cancel()
	select {
	case <-l.gone:
	case <-time.After(10 * time.Second):
		return errors.Join(err, fmt.Errorf("sentry %d does not end", pid))
	}
	return err
}

// release frees what a dead life holds outside of this process.
func (l *life) release() error {
	l.cancel()
	err := l.group.waitEmpty(5 * time.Second)
	err = errors.Join(err, l.group.remove())
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range []*os.File{l.filestore, l.nic, l.pidfd} {
		if f != nil {
			f.Close()
		}
	}
	return errors.Join(err, removeFile(l.rec.Control))
}

// removeFile removes a file that may not be there.
func removeFile(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
