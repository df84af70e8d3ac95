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

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// adoptAll takes up what a former keeper wrote down. A sentry that still runs is
// taken up as it is; one that has ended meanwhile is recorded as dead; what never
// came to run is removed. No single life keeps the keeper from starting, nor do
// they together for longer than settleTime.
func (k *Keeper) adoptAll() error {
	entries, err := os.ReadDir(k.livesDir())
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, e := range entries {
		l, err := k.readLife(filepath.Join(k.livesDir(), e.Name()))
		if err != nil {
			k.log.Warn("an unfinished life is removed", "life", e.Name(), "error", err)
			k.chores.Go(func() { k.tidy(e.Name(), func() error { return k.scrap(e.Name()) }) })
			continue
		}
		k.mu.Lock()
		k.lives[l.id] = l
		k.mu.Unlock()
		if k.adopt(l) && l.record().Turning {
			wg.Go(func() { k.settleAdopted(l) })
		}
	}
	wg.Wait()
	return nil
}

// settleTime is how long a start waits for sentries that a former keeper was just
// pausing or resuming.
const settleTime = 5 * time.Second

func (k *Keeper) settleAdopted(l *life) {
	if err := l.settle(settleTime); err != nil {
		k.log.Error("whether a life stands still is not known", "life", l.id, "error", err) // the next pause or resume tries again
	}
}

// scrap removes every trace of a life that has no record.
func (k *Keeper) scrap(id string) error {
	g := &group{h: k.cgroups, life: id}
	if err := errors.Join(g.kill(), g.waitEmpty(5*time.Second), g.remove()); err != nil {
		return err
	}
	return errors.Join(removeFile(k.controlSocket(id)), os.RemoveAll(filepath.Join(k.livesDir(), id)))
}

func (k *Keeper) readLife(dir string) (*life, error) {
	b, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return nil, err
	}
	l := k.newLife(filepath.Base(dir))
	if err := json.Unmarshal(b, &l.rec); err != nil {
		return nil, err
	}
	if l.rec.Life.Life != l.id || l.rec.PID <= 0 {
		return nil, errors.New("record without a process")
	}
	return l, nil
}

// errEnded is a process that is not there any more.
var errEnded = errors.New("the process has ended")

// adopt takes a life up and reports whether it runs.
func (k *Keeper) adopt(l *life) bool {
	r := l.record()
	d := l.death
	if r.State != keeperapi.StateDead {
		err := k.adoptProcess(l, r.PID, r.Start, r.Control, false)
		if err == nil {
			return true
		}
		if !errors.Is(err, errEnded) {
			k.log.Error("a life cannot be taken up and is ended", "life", l.id, "error", err)
			d = func(bool, unix.WaitStatus) cube.Death {
				return cube.Death{Reason: cube.DeathUnknown, At: time.Now(), Detail: clip(fmt.Sprintf("the keeper could not take it up: %v", err))}
			}
		}
	}
	l.group.kill()
	if r.State != keeperapi.StateDead {
		how := d(false, 0)
		if err := l.note(func(r *record) { r.State, r.Death = keeperapi.StateDead, &how }); err != nil {
			k.log.Error("a death cannot be written down", "life", l.id, "error", err)
		}
	}
	close(l.gone)
	k.wg.Go(func() { k.release(l) })
	return false
}
