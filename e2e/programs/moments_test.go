package programs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"cubesandbox/e2e/lab"
)

// total is how long the programs work together, two at a time; with no CUBE_FORM each goes
// through two verbs, else through every one once at least. Ten minutes are too long for make check: those, and hours by
// CUBE_SOAK_TIME, are for make soak, which is the form that the issue asks of CI.
func total(t *testing.T) time.Duration {
	t.Helper()
	d := lab.Pick(0, 75*time.Second, 15*time.Minute)
	if text := os.Getenv("CUBE_SOAK_TIME"); text != "" {
		var err error
		if d, err = time.ParseDuration(text); err != nil {
			t.Fatalf("CUBE_SOAK_TIME: %v", err)
		}
	}
	return d
}

// TestProgramsAtWorkGoOnFromRandomMoments: each program is saved and restored, cloned,
// rolled back, and paused and resumed, at random moments, also while it compares all that
// it holds. The sandbox that goes on is the source or one of its copies, so that chains of
// generations come about. Every copy has exactly the marks that were set before its
// moment, compares every byte, takes a mark of its own, goes on with every worker while
// the others write too, and compares again before it ends.
func TestProgramsAtWorkGoOnFromRandomMoments(t *testing.T) {
	s.Guard(t)
	random, programs := lab.Chance(t, 5), chosen(t)
	each := total(t) * time.Duration(min(2, len(programs))) / time.Duration(len(programs))
	turns := slices.Clone(verbs)
	random.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
	var chains []*chain
	for _, p := range programs {
		chains = append(chains, &chain{program: p, turns: slices.Clone(turns), random: rand.New(rand.NewPCG(random.Uint64(), 1)), done: map[string]int{}})
		turns = append(turns[few:], turns[:few]...) // with no CUBE_FORM, others come first with the next
	}
	var mu sync.Mutex // guards chains
	lab.ByTwos(len(chains), func() bool {
		mu.Lock()
		c := chains[0]
		chains = chains[1:]
		mu.Unlock()
		began := time.Now()
		if err := c.run(t.Context(), each); err != nil {
			t.Errorf("%s: after %v: %v", c.program.name, c.done, err)
		}
		t.Logf("%s: %v, %d generations, %d copies in %v", c.program.name, c.done, c.generations, c.copies, time.Since(began).Round(time.Second/10))
		return true
	})
}

// chain is a program in a line of sandboxes.
type chain struct {
	program program
	turns   []verb // the first ones first
	random  *rand.Rand
	now     *one
	saved   []saved // the oldest first

	done                map[string]int // verbs
	generations, copies int
	named               int // marks
}

// verb is something that is done to a sandbox at a random moment.
type verb struct {
	name string
	do   func(*chain, context.Context) error
}

var verbs = []verb{
	{"snapshot", (*chain).snapshot}, {"clone", (*chain).clone}, {"rollback", (*chain).rollback}, {"pause", (*chain).pause}, {"again", (*chain).again},
}

// few is how many verbs each program goes through where CUBE_FORM is not set.
const few = 2

// run has the program go through the verbs until the time is up, through each once at
// least. At the end it has to find what is wrong.
func (c *chain) run(ctx context.Context, d time.Duration) (err error) {
	box, was, err := c.program.start(ctx)
	if err != nil {
		return err
	}
	c.now = &one{box, was}
	defer func() { err = errors.Join(err, c.end(context.WithoutCancel(ctx))) }()
	end := time.Now().Add(d)
	for first := true; ; first = false {
		for _, v := range c.turns[:lab.Pick(few, len(verbs), len(verbs))] {
			if err := c.moment(ctx); err != nil {
				return err
			}
			if err := v.do(c, ctx); err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			c.done[v.name]++
			if !first && !time.Now().Before(end) {
				return c.spoil(ctx)
			}
		}
		if !time.Now().Before(end) {
			return c.spoil(ctx)
		}
		c.random.Shuffle(len(c.turns), func(i, j int) { c.turns[i], c.turns[j] = c.turns[j], c.turns[i] })
	}
}

// spoil has the program find a byte that was changed behind its back: it would have found
// one before too.
func (c *chain) spoil(ctx context.Context) error {
	// What it is asked first may already say so.
	if _, err := s.Ask(ctx, c.now.box.ID, "spoil"); err != nil && !errors.Is(err, lab.ErrWrong) {
		return err
	}
	if _, err := s.Ask(ctx, c.now.box.ID, "check"); !errors.Is(err, lab.ErrWrong) {
		return fmt.Errorf("a byte was changed, and the program says %v, want %w", err, lab.ErrWrong)
	}
	return nil
}

// moment lets the program work for a random time.
func (c *chain) moment(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(c.random.Int64N(int64(300 * time.Millisecond)))):
		return nil
	}
}

// during calls f now or, as often, at a random moment after the program was asked to
// compare all that it holds.
func (c *chain) during(ctx context.Context, f func() error) error {
	if c.random.IntN(2) == 0 {
		return f()
	}
	compared := make(chan error, 1)
	go func() {
		_, err := c.now.look(ctx)
		compared <- err
	}()
	if err := c.moment(ctx); err != nil {
		return errors.Join(err, <-compared)
	}
	return errors.Join(f(), <-compared)
}

// name is one for a mark, which nobody else has.
func (c *chain) name() string {
	c.named++
	return fmt.Sprintf("%d-%x", c.named, c.random.Uint32())
}

// end takes away what there is.
func (c *chain) end(ctx context.Context) error {
	errs := []error{s.API.Kill(ctx, c.now.box.ID)}
	for _, k := range c.saved {
		errs = append(errs, s.API.DeleteImage(ctx, string(k.image)))
	}
	return errors.Join(errs...)
}
