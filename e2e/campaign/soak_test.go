package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// soakTime is how long the soak goes on; CUBE_SOAK_TIME is another.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	d := lab.Pick(5*time.Second, 20*time.Second, 3*time.Hour)
	if text := os.Getenv("CUBE_SOAK_TIME"); text != "" {
		var err error
		if d, err = time.ParseDuration(text); err != nil {
			t.Fatalf("CUBE_SOAK_TIME: %v", err)
		}
	}
	return d
}

// TestHoursOfCheckpointsAndKillsLoseNothing: some sandboxes work, each is saved once a
// minute, put to sleep now and then, and at random moments server, keeper, network
// process, both of these, or a sentry are killed. What died comes back from its last
// snapshot or a newer one. Every snapshot that was acknowledged and not deleted reads
// whole, and gives a sandbox that is what was saved.
func TestHoursOfCheckpointsAndKillsLoseNothing(t *testing.T) {
	guard(t)
	d := soakTime(t)
	k := &soak{t: t, chance: lab.Chance(t, sampleSeed), every: min(time.Minute, d/8)}
	for range lab.Pick(2, 4, 4) {
		k.boxes = append(k.boxes, k.begin(autoRecovered(t)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	killer := rand.New(rand.NewPCG(k.chance.Uint64(), 0))
	wg.Go(func() { k.kills(ctx, killer, min(20*time.Second, d/8)) })
	for _, b := range k.boxes {
		chance := rand.New(rand.NewPCG(k.chance.Uint64(), 1))
		wg.Go(func() { k.work(ctx, b, chance) })
	}
	wg.Wait()
	k.end()
}

// soak is what goes on.
type soak struct {
	t      *testing.T
	chance *rand.Rand
	every  time.Duration // between two checkpoints of a sandbox
	boxes  []*soaked

	mu                    sync.Mutex // guards the following
	killed                map[string]int
	checkpoints, restores int
}

// soaked is one sandbox, and what was acknowledged of it. One goroutine works on it.
type soaked struct {
	*subject
	last  held         // when it was last seen
	saved []checkpoint // not deleted, the oldest first
}

// checkpoint is an acknowledged snapshot. What it holds is not older than before.
type checkpoint struct {
	id     cube.ImageID
	before held
}

// keptSnapshots is how many snapshots of a sandbox are not deleted.
const keptSnapshots = 3

func (k *soak) begin(u *subject) *soaked {
	return &soaked{subject: u, last: u.before, saved: []checkpoint{{u.snap.ID, u.before}}}
}

// count adds one to a counter of what was done.
func (k *soak) count(n *int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	*n++
}

// work saves a sandbox again and again, puts it to sleep, and looks at it and at what
// was saved.
func (k *soak) work(ctx context.Context, b *soaked, chance *rand.Rand) {
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		for name, do := range map[string]func(context.Context, *rand.Rand) error{
			"look": b.look, "checkpoint": k.checkpoint(b), "sleep": b.sleep, "restore": k.restore(b),
		} {
			// What has begun is brought to its end, so that nothing is in doubt.
			if err := do(context.WithoutCancel(ctx), chance); err != nil {
				k.t.Errorf("%s: %s: %v", b.box.ID, name, err)
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// insistence is how long a user tries again while servers are killed.
const insistence = time.Minute

// insist does what a user does whose server may be away: the same again, until it is
// done or refused for good.
func insist(ctx context.Context, f func() error) error {
	return lab.Until(insistence, "it is done", f)
}

// look has it come through whole since it was last seen; if it was killed meanwhile,
// it goes on from a snapshot, and not an older one than the last.
func (b *soaked) look(ctx context.Context, _ *rand.Rand) error {
	var now held
	err := insist(ctx, func() (err error) {
		if now, err = look(ctx, b.box.ID); err == nil {
			return nil
		}
		if _, gerr := users.Get(ctx, b.box.ID); errors.Is(gerr, cube.ErrNotFound) {
			_, gerr = recoverBox(ctx, b.box.ID)
			return errors.Join(err, gerr)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := now.follows(b.last); err != nil {
		if err := now.follows(b.saved[len(b.saved)-1].before); err != nil {
			return fmt.Errorf("it is neither what it was nor what was saved of it: %w", err)
		}
	}
	b.last = now
	return nil
}

// sleep pauses it and wakes it by traffic, now and then.
func (b *soaked) sleep(ctx context.Context, chance *rand.Rand) error {
	if chance.IntN(3) > 0 {
		return nil
	}
	err := insist(ctx, func() error {
		err := users.Pause(ctx, b.box.ID)
		if got, gerr := users.Get(ctx, b.box.ID); gerr == nil && got.State == "paused" || errors.Is(gerr, cube.ErrNotFound) {
			return nil // or it died, which look takes care of
		}
		return err
	})
	if err == nil {
		err = insist(ctx, func() error {
			_, err := users.Connect(ctx, b.box.ID, 0)
			return gone(err)
		})
	}
	if err != nil {
		return err
	}
	return b.look(ctx, chance)
}

// checkpoint saves it, with a key, so that one that was made and not heard of is found
// again. The oldest is deleted.
func (k *soak) checkpoint(b *soaked) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, chance *rand.Rand) error {
		tag, before := tag(), b.last
		var snap snapshot
		died := false
		err := insist(ctx, func() (err error) {
			snap, err = snapshotKeyed(ctx, tag, b.box.ID, "")
			died = errors.Is(err, cube.ErrNotFound)
			if died {
				return nil
			}
			return err
		})
		if err != nil || died {
			return errors.Join(err, b.look(ctx, chance))
		}
		k.count(&k.checkpoints)
		b.saved = append(b.saved, checkpoint{snap.ID, before})
		if len(b.saved) <= keptSnapshots {
			return nil
		}
		old := b.saved[0]
		b.saved = b.saved[1:]
		return insist(ctx, func() error { return gone(users.DeleteImage(ctx, string(old.id))) })
	}
}

// restore reads one that was saved whole, and makes a sandbox of it.
func (k *soak) restore(b *soaked) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, chance *rand.Rand) error {
		return k.restored(ctx, b.saved[chance.IntN(len(b.saved))])
	}
}

func (k *soak) restored(ctx context.Context, c checkpoint) error {
	if err := insist(ctx, func() error { return verify(ctx, c.id) }); err != nil {
		return fmt.Errorf("snapshot %s: %w", c.id, err)
	}
	key := tag()
	var made client.Sandbox
	err := insist(ctx, func() (err error) {
		made, err = createKeyed(ctx, key, newBox{Template: string(c.id), Timeout: -1})
		if err == nil {
			var h held
			if h, err = look(ctx, made.ID); err == nil {
				return h.follows(c.before)
			}
		}
		if errors.Is(err, cube.ErrNotFound) { // its sentry was killed: it never was saved
			key = tag()
		}
		return err
	})
	k.count(&k.restores)
	return errors.Join(err, insist(ctx, func() error { return gone(users.Kill(ctx, made.ID)) }))
}

// kills kills one after the other, at random moments.
func (k *soak) kills(ctx context.Context, chance *rand.Rand, mean time.Duration) {
	k.mu.Lock()
	k.killed = map[string]int{}
	k.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(mean/2 + time.Duration(chance.Int64N(int64(mean)))):
		}
		who := []string{"the server", "the server", keeper, network, both, sentries}[chance.IntN(6)]
		if err := k.kill(context.WithoutCancel(ctx), who, chance); err != nil {
			k.t.Errorf("kill %s: %v", who, err)
			return
		}
		k.mu.Lock()
		k.killed[who]++
		k.mu.Unlock()
	}
}

func (k *soak) kill(ctx context.Context, who string, chance *rand.Rand) error {
	switch who {
	case "the server":
		return errors.Join(s.Signal(syscall.SIGKILL), s.Start(ctx))
	case sentries:
		lives, err := s.Lives(ctx)
		if err != nil || len(lives) == 0 {
			return err
		}
		return process(lives[chance.IntN(len(lives))].PID)(syscall.SIGKILL)
	}
	var all []target
	// One that was killed may just be started again.
	err := lab.Until(insistence, who+" is there", func() (err error) {
		all, _, err = blow{who: who, kill: true}.targets(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return blow{who: who, kill: true}.strike(all)
}

// end looks at everything once more.
func (k *soak) end() {
	ctx := context.WithoutCancel(k.t.Context())
	for _, b := range k.boxes {
		if err := b.look(ctx, nil); err != nil {
			k.t.Errorf("%s: at the end: %v", b.box.ID, err)
		}
		for _, c := range b.saved {
			if err := k.restored(ctx, c); err != nil {
				k.t.Errorf("%s: at the end: %v", b.box.ID, err)
			}
		}
	}
	if err := errors.Join(settled(ctx), tidy(ctx)); err != nil {
		k.t.Error(err)
	}
	k.t.Logf("%d checkpoints, %d restored, killed: %v", k.checkpoints, k.restores, k.killed)
	if k.checkpoints == 0 || k.restores == 0 || len(k.killed) == 0 {
		k.t.Error("nothing was tried")
	}
}
