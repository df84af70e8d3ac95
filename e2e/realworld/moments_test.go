package realworld

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// TestProgramsOfTheRealWorldGoOnFromRandomMoments: each program is saved and rolled back at
// random moments. It goes on from a save as if there had been none; from a rollback as it
// was when it was saved, with what its clients inside know; and a clone of the snapshot does
// the same, beside it. Whoever knows what must be so looks at all of it each time.
func TestProgramsOfTheRealWorldGoOnFromRandomMoments(t *testing.T) {
	s.Guard(t)
	random := lab.Chance(t, sampleSeed)
	var courses []*course
	for _, p := range chosen(t) {
		courses = append(courses, &course{program: p, random: rand.New(rand.NewPCG(random.Uint64(), 1))})
	}
	var mu sync.Mutex // guards courses
	lab.ByTwos(len(courses), func() bool {
		mu.Lock()
		c := courses[0]
		courses = courses[1:]
		mu.Unlock()
		began := time.Now()
		if err := c.run(t.Context()); err != nil {
			t.Errorf("%s: turn %d: %v; the server's log has\n%s", c.program.name, c.turn, err, s.Warnings(5))
		}
		t.Logf("%s: %d turns, %d clones in %v", c.program.name, c.turn, c.clones, time.Since(began).Round(time.Second/10))
		return true
	})
}

// course is a program and what happens to its sandbox.
type course struct {
	program program
	random  *rand.Rand
	box     client.Sandbox
	visitor *visitor
	saved   []saved // the oldest first

	turn, clones, named int
}

// saved is a snapshot, and what was so when it was made.
type saved struct {
	image    cube.ImageID
	was      lab.Working
	answered span // by the server, to the visitor
}

// keptSnapshots is how many of them are not deleted.
const keptSnapshots = 2

// cloneEach is how many turns there are for one that makes a clone too.
const cloneEach = 3

func (c *course) run(ctx context.Context) (err error) {
	if c.box, err = c.program.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.end(context.WithoutCancel(ctx))) }()
	if c.program.visited {
		c.visitor = visit(ctx, c.box.ID, rand.New(rand.NewPCG(c.random.Uint64(), 2)), span{})
	}
	for c.turn = 1; c.turn <= c.program.turns(); c.turn++ {
		k, err := c.save(ctx)
		if err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		if c.turn%cloneEach == 1 {
			if err := c.clone(ctx, k); err != nil {
				return fmt.Errorf("clone: %w", err)
			}
		}
		if err := s.Progress(ctx, c.box.ID, k.was); err != nil {
			return fmt.Errorf("the source after the snapshot: %w", err)
		}
		if err := c.rollback(ctx); err != nil {
			return fmt.Errorf("rollback: %w", err)
		}
	}
	c.turn--
	return nil
}

// save makes a snapshot at a random moment, which for jobs is one at which one of them
// runs. Afterwards the program takes a mark, which whoever goes back does not have.
func (c *course) save(ctx context.Context) (k saved, err error) {
	for {
		if k, err = c.saveOnce(ctx); err != nil {
			return k, err
		}
		now, err := s.SetMark(ctx, c.box.ID, c.name())
		if err != nil {
			return k, err
		}
		before := now
		before.Marks = now.Marks[:len(now.Marks)-1]
		if err := before.Follows(k.was); err != nil {
			return k, err
		}
		if !c.program.jobs || k.was.Job != 0 && now.Job == k.was.Job {
			break
		}
		if err := s.API.DeleteImage(ctx, string(k.image)); err != nil {
			return k, err
		}
	}
	c.saved = append(c.saved, k)
	if len(c.saved) > keptSnapshots {
		old := c.saved[0]
		c.saved = c.saved[1:]
		err = s.API.DeleteImage(ctx, string(old.image))
	}
	return k, err
}

func (c *course) saveOnce(ctx context.Context) (k saved, err error) {
	if err := c.moment(ctx); err != nil {
		return k, err
	}
	if k.was, err = s.Ask(ctx, c.box.ID, "rounds"); err != nil {
		return k, err
	}
	if c.visitor != nil {
		if k.answered, err = c.visitor.number(); err != nil {
			return k, err
		}
	}
	snap, err := s.API.Snapshot(ctx, c.box.ID, "")
	if err != nil {
		return k, errors.Join(err, s.Progress(ctx, c.box.ID, k.was))
	}
	k.image = snap.ID
	if c.visitor != nil {
		var after span
		if after, err = c.visitor.number(); err != nil {
			return k, err
		}
		k.answered.most = after.most
	}
	return k, nil
}

// rollback takes the sandbox back to one of its snapshots, mostly to the last.
func (c *course) rollback(ctx context.Context) error {
	at := len(c.saved) - 1
	if c.random.IntN(4) == 0 {
		at = 0
	}
	k := c.saved[at]
	if err := c.moment(ctx); err != nil {
		return err
	}
	back := func() error { return s.API.Rollback(ctx, c.box.ID, string(k.image)) }
	var err error
	if c.visitor != nil {
		err = c.visitor.goBack(back, k.answered)
	} else {
		err = back()
	}
	if err != nil {
		return err
	}
	if err := c.goesOn(ctx, c.box.ID, k.was); err != nil {
		return err
	}
	if c.visitor != nil {
		_, err = c.visitor.number() // he is answered again
	}
	return err
}

// goesOn: the program in a sandbox is as it was, has done nothing wrong since, and works.
// The job that ran is brought to its end, and the next one is begun.
func (c *course) goesOn(ctx context.Context, id cube.SandboxID, was lab.Working) error {
	now, err := s.Ask(ctx, id, "rounds")
	if err == nil {
		err = now.Follows(was)
	}
	if err == nil {
		err = s.Progress(ctx, id, now)
	}
	if err == nil {
		now, err = s.Ask(ctx, id, c.program.look())
	}
	if err == nil {
		err = now.Follows(was)
	}
	if err == nil && c.program.jobs && !slices.Contains(now.Ended, was.Job) {
		err = fmt.Errorf("%w: job %d, which ran when it was saved, has not ended well: those that have are %v", lab.ErrWrong, was.Job, now.Ended)
	}
	return err
}

// clone makes a sandbox of a snapshot, which goes on beside the source.
func (c *course) clone(ctx context.Context, k saved) (err error) {
	source, err := s.Ask(ctx, c.box.ID, "rounds")
	if err != nil {
		return err
	}
	made, err := s.API.Create(ctx, client.NewSandbox{Template: string(k.image), Timeout: cube.NeverTimeout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.API.Kill(context.WithoutCancel(ctx), made.ID)) }()
	c.clones++
	if c.visitor != nil {
		v := visit(ctx, made.ID, rand.New(rand.NewPCG(c.random.Uint64(), 3)), k.answered)
		defer func() { err = errors.Join(err, v.leave()) }()
	}
	if err := c.goesOn(ctx, made.ID, k.was); err != nil {
		return err
	}
	now, err := s.Ask(ctx, c.box.ID, c.program.look())
	if err == nil {
		err = now.Follows(source)
	}
	if err != nil {
		return fmt.Errorf("the source beside it: %w", err)
	}
	return nil
}

// moment lets the program work for a random time.
func (c *course) moment(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(c.random.Int64N(int64(400 * time.Millisecond)))):
		return nil
	}
}

// name is one for a mark, which nobody else has.
func (c *course) name() string {
	c.named++
	return fmt.Sprintf("%d-%x", c.named, c.random.Uint32())
}

// end takes away what there is, and hears what the visitor has to say.
func (c *course) end(ctx context.Context) (err error) {
	if c.visitor != nil {
		err = c.visitor.leave()
	}
	for _, k := range c.saved {
		err = errors.Join(err, s.API.DeleteImage(ctx, string(k.image)))
	}
	return errors.Join(err, s.API.Kill(ctx, c.box.ID))
}
