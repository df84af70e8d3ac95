package sentry

import (
	"context"
	"fmt"
	"os"
	"time"

	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// A sandbox that is idle for a while gives back memory that it does not need: what its
// kernel's heap has left over, and pages that it had to take from an image and never
// changed. It stands still for some milliseconds meanwhile.

const (
	// idleLook is how often it is looked for lives that are idle, and idleLooks how many
	// times in a row one must be found so.
	idleLook  = 15 * time.Second
	idleLooks = 4
	// idleShare is of which part of a processor a life that is idle uses less.
	idleShare = 200
)

// idleness is what is known of one life.
type idleness struct {
	cpu   time.Duration // its CPU time when it was last looked at
	looks int           // for how many times it has been idle
}

// look takes the CPU time of a life, so long after the last, and reports whether it is now
// that it is to give back memory: once for as long as it is idle.
func (i *idleness) look(cpu, after time.Duration) bool {
	used := cpu - i.cpu
	i.cpu = cpu
	// Where it is not known what they use, all are taken for busy.
	if cpu == 0 || used < 0 || used >= after/idleShare {
		i.looks = 0
		return false
	}
	i.looks++
	return i.looks == idleLooks
}

// watchIdle looks after all lives until the keeper ends.
func (k *Keeper) watchIdle() {
	known := map[string]*idleness{}
	tick := time.NewTicker(idleLook)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-k.stop:
			return
		case now := <-tick.C:
			known = k.lookIdle(known, now.Sub(last))
			last = now
		}
	}
}

// lookIdle looks once, and returns what is known of those that there are.
func (k *Keeper) lookIdle(known map[string]*idleness, after time.Duration) map[string]*idleness {
	now := map[string]*idleness{}
	for _, l := range k.all() {
		select {
		case <-k.stop:
			return now
		default:
		}
		if l.need(keeperapi.StateRunning) != nil {
			continue // a frozen one cannot become idle
		}
		i := known[l.id]
		if i == nil {
			i = &idleness{}
		}
		now[l.id] = i
		if !i.look(l.group.cpu(), after) || !l.op.TryLock() {
			continue
		}
		_, err := giveBackLocked(l)
		l.op.Unlock()
		i.cpu = l.group.cpu() // that was not its own work
		if err != nil {
			k.log.Warn("a life gives back no memory", "life", l.id, "error", err)
		}
	}
	return now
}

// giveBackLocked has a life give back memory; l.op is held.
func giveBackLocked(l *life) (uint64, error) {
	if err := l.need(keeperapi.StateRunning); err != nil {
		return 0, err
	}
	return giveBack(l)
}

// giveBack has a life give back memory at once.
func (k *Keeper) giveBack(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	l, err := k.ref(r, 0)
	if err != nil {
		return nil, nil, err
	}
	l.op.Lock()
	defer l.op.Unlock()
	n, err := giveBackLocked(l)
	if err != nil {
		return nil, nil, fmt.Errorf("give back memory: %w", err)
	}
	return keeperapi.GaveBack{Shared: int64(min(n, 1<<62))}, nil, nil
}
