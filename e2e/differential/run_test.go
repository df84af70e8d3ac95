package differential

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/differential/guestapi"
	"cubesandbox/e2e/lab"
)

// shape says what a run is to show.
type shape struct {
	mode        guestapi.Mode
	generations int
	rounds      int   // how often each operation is done
	most        int   // operations of a generation at most; 0: all
	large       int64 // length of the two large files, in bytes
	// load: threads write all the time, in all but the model. reclaim: image files are
	// taken out of the page cache all the time.
	load, reclaim bool
}

// step is an operation that was done.
type step struct {
	operation string
	seed      uint64
}

// saved is a snapshot, and what a copy of it must be.
type saved struct {
	id     cube.ImageID
	source cube.SandboxID
	steps  int // that were done before
	parts  []guestapi.Part
}

// run is one line of states.
type run struct {
	shape
	seed   uint64
	chance *rand.Rand
	// fault is what goes wrong on purpose: a test of this test.
	fault fault
	// says gets a line on what is done.
	says func(format string, args ...any)

	model, subject *box
	parts          []guestapi.Part // the model's, when all was compared last
	steps          []step
	saves          []saved
	generation     int
	history        []string
	now            string // what is being done
	spent          map[string]time.Duration
}

// A fault is one that a run must see.
type fault int

// The faults.
const (
	_ fault = iota // none
	// lostStore: all but the model leave out one store of each operation.
	lostStore
	// nobodyApart: who is to be given other commands gets the same.
	nobodyApart
)

func newRun(seed uint64, sh shape, says func(string, ...any)) *run {
	return &run{shape: sh, seed: seed, chance: rand.New(rand.NewPCG(seed, 1)), says: says}
}

// took adds to the time that a kind of work has taken.
func (u *run) took(what string, since time.Time) {
	if u.spent == nil {
		u.spent = map[string]time.Duration{}
	}
	u.spent[what] += time.Since(since).Round(time.Millisecond)
}

// note remembers what is done, for a failure.
func (u *run) note(format string, args ...any) {
	u.now = fmt.Sprintf(format, args...)
	u.history = append(u.history, u.now)
}

// do is the whole run. Its error says where in it.
func (u *run) do(ctx context.Context) (err error) {
	defer func() { u.says("time: %v", u.spent) }()
	defer func() {
		err = errors.Join(err, u.model.kill(context.WithoutCancel(ctx)), u.subject.kill(context.WithoutCancel(ctx)))
		if err != nil {
			err = fmt.Errorf("CUBE_SEED=%d, %s, generation %d, %s: %w\nhistory:\n  %s", u.seed, u.mode, u.generation, u.now, err, strings.Join(u.history, "\n  "))
		}
	}()
	if err := u.boot(ctx); err != nil {
		return err
	}
	decks, err := u.deal(ctx)
	if err != nil {
		return err
	}
	turns := u.turns()
	for i, deck := range decks {
		u.generation = i + 1
		began := time.Now()
		if err := u.live(ctx, deck, turns[i]); err != nil {
			return err
		}
		u.says("%s, generation %d: %d operations, then %s: %v", u.mode, u.generation, len(deck), turns[i], time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// boot makes model and subject, which have nothing in common but what they are told.
func (u *run) boot(ctx context.Context) error {
	u.note("boot model and subject")
	defer u.took("boots", time.Now())
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { u.model, errs[0] = u.start(ctx, "model") })
	wg.Go(func() { u.subject, errs[1] = u.start(ctx, "subject") })
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if u.load {
		if _, err := u.subject.ask(ctx, guestapi.Request{Do: guestapi.Load}); err != nil {
			return err
		}
	}
	return u.look(ctx, []*box{u.subject}, nil)
}

// start boots one with the state from which all begin.
func (u *run) start(ctx context.Context, role string) (*box, error) {
	b, err := cold(ctx, role)
	if err != nil {
		return nil, err
	}
	if _, err := b.ask(ctx, guestapi.Request{Do: guestapi.Begin, Mode: u.mode, Seed: u.seed, Large: u.large}); err != nil {
		return nil, errors.Join(err, b.kill(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// deal gives each generation its operations, so that each is done as often as all others.
func (u *run) deal(ctx context.Context) ([][]string, error) {
	a, err := u.model.ask(ctx, guestapi.Request{Do: guestapi.Operations})
	if err != nil {
		return nil, err
	}
	if len(a.Operations) == 0 {
		return nil, errors.New("the guest knows no operations")
	}
	var names []string
	for range u.rounds {
		u.chance.Shuffle(len(a.Operations), func(i, j int) { a.Operations[i], a.Operations[j] = a.Operations[j], a.Operations[i] })
		names = append(names, a.Operations...)
	}
	decks := make([][]string, u.generations)
	for i, name := range names {
		deck := &decks[i%u.generations]
		if u.most == 0 || len(*deck) < u.most {
			*deck = append(*deck, name)
		}
	}
	return decks, nil
}

// A turn is how a run goes on after a generation.
const (
	toCopy   = "go on with a copy"
	toSource = "go on with the running source"
	toOlder  = "roll the source back"
	toPaused = "pause and resume a copy"
	toFresh  = "look at an older snapshot, delete it, and go on with a copy"
)

func (u *run) turns() (turns []string) {
	for len(turns) < u.generations {
		six := []string{toSource, toOlder, toPaused, toFresh, toCopy, toCopy}
		u.chance.Shuffle(len(six), func(i, j int) { six[i], six[j] = six[j], six[i] })
		turns = append(turns, six...)
	}
	return turns[:u.generations]
}

// live is one generation: a snapshot of the subject, two copies, operations, and a
// turn.
func (u *run) live(ctx context.Context, deck []string, turn string) (err error) {
	stop := func() error { return nil }
	if u.reclaim {
		stop = reclaim(ctx)
	}
	defer func() { err = errors.Join(err, stop()) }()
	began := time.Now()
	copies, err := u.copies(ctx)
	u.took("saves and copies", began)
	defer func() { err = errors.Join(err, killAll(ctx, copies)) }()
	if err != nil {
		return err
	}
	boxes := []*box{u.subject, copies[0], copies[1]}
	apart := boxes[1+u.chance.IntN(2)]
	if turn != toSource && u.chance.IntN(3) == 0 {
		apart = u.subject
	}
	u.note("%s is given other commands", apart.role)
	var same []*box
	for _, b := range boxes {
		if b != apart {
			same = append(same, b)
		}
	}
	// One is looked at after each operation; what reads pages may hide that others were
	// never read.
	often := same[u.chance.IntN(2)]
	for _, name := range deck {
		if err := u.operate(ctx, name, boxes, apart, often); err != nil {
			return err
		}
	}
	if err := u.look(ctx, boxes, apart); err != nil {
		return err
	}
	if u.load {
		if err := u.blocks(ctx, boxes); err != nil {
			return err
		}
	}
	next := same[u.chance.IntN(2)]
	if turn == toSource || turn == toOlder {
		next = u.subject // who may be the one apart, before it goes back
	}
	if next != u.subject {
		old := u.subject
		for i := range copies {
			if copies[i] == next {
				copies[i] = nil
			}
		}
		u.subject = next
		next.role = "subject"
		if err := old.kill(ctx); err != nil {
			return err
		}
	}
	return u.turn(ctx, turn)
}

func killAll(ctx context.Context, boxes []*box) (err error) {
	for _, b := range boxes {
		err = errors.Join(err, b.kill(context.WithoutCancel(ctx)))
	}
	return err
}

// copies saves the subject and makes two copies, of the snapshot or by cloning.
func (u *run) copies(ctx context.Context) (out []*box, err error) {
	u.note("snapshot the subject")
	snap, err := s.API.Snapshot(ctx, u.subject.id, "")
	if err != nil {
		return nil, err
	}
	u.saves = append(u.saves, saved{snap.ID, u.subject.id, len(u.steps), u.parts})
	for len(out) < 2 {
		role := fmt.Sprintf("copy %c", 'A'+len(out))
		if u.chance.IntN(2) == 0 {
			u.note("create %s of the snapshot", role)
			sb, err := s.API.Create(ctx, client.NewSandbox{Template: string(snap.ID), Timeout: cube.NeverTimeout})
			if err != nil {
				return out, err
			}
			out = append(out, &box{role, sb.ID})
			continue
		}
		n := 1 + u.chance.IntN(2-len(out))
		u.note("%d clones of the subject", n)
		made, err := s.API.Clone(ctx, u.subject.id, client.Cloning{Count: n})
		if err != nil {
			return out, err
		}
		for _, sb := range made {
			out = append(out, &box{fmt.Sprintf("copy %c", 'A'+len(out)), sb.ID})
		}
	}
	return out, nil
}

// operate does one operation in all, and compares.
func (u *run) operate(ctx context.Context, name string, boxes []*box, apart, often *box) error {
	st, other := step{name, u.chance.Uint64()}, u.chance.Uint64()
	u.note("operation %q", name)
	u.steps = append(u.steps, st)
	all := append([]*box{u.model}, boxes...)
	defer u.took("operations", time.Now())
	answers, err := askAll(ctx, all, func(b *box) guestapi.Request {
		q := guestapi.Request{Do: guestapi.Operate, Operation: name, Seed: st.seed}
		if b == apart && u.fault != nobodyApart {
			q.Seed = other
		}
		if b != u.model && u.fault == lostStore {
			q.LeaveOut = 1
		}
		return q
	})
	if err != nil {
		return err
	}
	if err := sameResults(boxes, answers[1:], answers[0], apart); err != nil {
		return err
	}
	defer u.took("looks after operations", time.Now())
	both, err := digests(ctx, []*box{often, u.model}, each(quickly))
	if err != nil {
		return err
	}
	return compare(ctx, often, u.model, both[0], both[1])
}

// look compares all. What is as the model in one way is so in every way in which it can
// be read. One that was given other commands is only seen to be another.
func (u *run) look(ctx context.Context, boxes []*box, apart *box) error {
	u.note("compare all")
	defer u.took("full looks", time.Now())
	parts, err := digests(ctx, append([]*box{u.model}, boxes...), func(b *box) depth {
		if b == u.model || b == apart {
			return all
		}
		return everyWay
	})
	if err != nil {
		return err
	}
	u.parts = parts[0]
	var errs []error
	for i, b := range boxes {
		switch {
		case b != apart:
			errs = append(errs, compare(ctx, b, u.model, parts[i+1], parts[0]))
		case len(differing(parts[i+1], parts[0])) == 0:
			errs = append(errs, fmt.Errorf("%s: %w", b.role, errApart))
		}
	}
	return errors.Join(errs...)
}

// blocks wants every block that the load writes to be whole, and the load to go on.
func (u *run) blocks(ctx context.Context, boxes []*box) error {
	u.note("check the blocks of the load")
	check := func(*box) guestapi.Request { return guestapi.Request{Do: guestapi.Check} }
	before, err := askAll(ctx, boxes, check)
	if err != nil {
		return err
	}
	return lab.Until(time.Minute, "the load goes on", func() error {
		after, err := askAll(ctx, boxes, check)
		for i := range after {
			if err == nil && after[i].Written <= before[i].Written {
				err = fmt.Errorf("%s has written %d blocks, as before", boxes[i].role, after[i].Written)
			}
		}
		return err
	})
}
