package sentry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"cubesandbox/gvisor/keeperapi"
)

// adoptAll takes up what a former keeper wrote down. A sentry that still runs is
// taken up as it is; one that has ended meanwhile is recorded as dead; what never
// came to run is removed.
func (k *Keeper) adoptAll() error {
	entries, err := os.ReadDir(k.livesDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(k.livesDir(), e.Name())
		l, err := k.readLife(dir)
		if err != nil {
			k.log.Warn("an unfinished life is removed", "life", e.Name(), "error", err)
			g := &group{h: k.cgroups, life: e.Name()}
			if err := errors.Join(g.kill(), g.waitEmpty(5*time.Second), g.remove(), os.RemoveAll(dir)); err != nil {
				return err
			}
			continue
		}
		k.lives[e.Name()] = l
		if err := k.adopt(l); err != nil {
			return fmt.Errorf("take up life %s: %w", e.Name(), err)
		}
	}
	return nil
}

func (k *Keeper) readLife(dir string) (*life, error) {
	b, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return nil, err
	}
	l := &life{dir: dir, group: &group{h: k.cgroups, life: filepath.Base(dir)}, gone: make(chan struct{}), released: make(chan struct{})}
	if err := json.Unmarshal(b, &l.rec); err != nil {
		return nil, err
	}
	if l.rec.Life.Life != filepath.Base(dir) || l.rec.PID == 0 {
		return nil, errors.New("record without a process")
	}
	return l, nil
}

func (k *Keeper) adopt(l *life) error {
	if l.rec.State == keeperapi.StateDead {
		close(l.gone)
		close(l.released)
		return nil
	}
	st, err := readStat(l.rec.PID)
	if err == nil && st.start == l.rec.Start {
		return k.adoptProcess(l, l.rec.PID, l.rec.Control, false)
	}
	// It ended while nobody was there.
	l.group.kill()
	d := l.death(false, 0)
	d.At = time.Now()
	if err := l.update(func(r *record) { r.State, r.Death = keeperapi.StateDead, &d }); err != nil {
		return err
	}
	close(l.gone)
	close(l.released)
	return l.release()
}

// blocks is the space that a file takes, in units of 512 bytes.
func blocks(fi fs.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Blocks
	}
	return 0
}
