package durable

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// TestAPowerCutLosesNothingThatWasAnswered: clients create, save, pause, resume, roll
// back, clone, kill and delete, and at a random moment the power is cut. Afterwards
// what was paused resumes as it was, durable snapshots are whole, all that was answered
// is on record, with the same tokens and keys, what ran is reported as ended and is
// recovered, what was deleted stays deleted, and nothing else is there.
func TestAPowerCutLosesNothingThatWasAnswered(t *testing.T) {
	cuts := map[string]int{"": 3, "ci": 20, "long": 200}[lab.Form()]
	p := openPower(t, lab.Chance(t, uint64(time.Now().UnixNano())))
	for n := 0; p.s.Proven() < cuts; n++ {
		p.proves(n < 2*cuts)
		p.round(n)
		if t.Failed() {
			t.Fatalf("cut %d, %d of %d before it were cuts; the server's log:\n%s", n+1, p.s.Proven(), cuts, p.s.Warnings(20))
		}
	}
	p.tell()
	shown := []string{
		"durable snapshots there", "running sandboxes reported as ended",
		"paused sandboxes resumed whole", "running sandboxes recovered when asked", "keys answered as before", "killed sandboxes stay so",
	}
	if lab.Form() == "" {
		shown = shown[:2] // of three cuts chance may leave out the others
	}
	for _, what := range shown {
		if p.l.counts[what] == 0 {
			t.Errorf("the cuts showed nothing of: %s", what)
		}
	}
}

// proves ends a test in which too many cuts were none.
func (p *power) proves(enough bool) {
	p.t.Helper()
	if !enough {
		p.t.Fatalf("only %d cuts have lost what was not synced: the machine writes it early, for there is much to write; try again when it is idle", p.s.Proven())
	}
}

// tell says what was shown how often.
func (p *power) tell() {
	p.t.Logf("%6d cuts that lost what was not synced", p.s.Proven())
	for _, what := range slices.Sorted(maps.Keys(p.l.counts)) {
		p.t.Logf("%6d %s", p.l.counts[what], what)
	}
}

// power is a server whose power is cut again and again.
type power struct {
	t       *testing.T
	s       *lab.Server
	l       *ledger
	random  *rand.Rand
	witness string
	dirs    []string // of templates that are built meanwhile
}

const workers = 3

func openPower(t *testing.T, random *rand.Rand) *power {
	t.Helper()
	s, err := lab.OpenServerOn(t.Context(), lab.PowerCutDisk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
	p := &power{t: t, s: s, l: newLedger(), random: random, dirs: variants(t, "small", "smaller")}
	in, st := witnessed(t, s, client.NewSandbox{Env: map[string]string{"WITNESS": "was here"}, Timeout: time.Hour})
	snap, err := s.API.Snapshot(t.Context(), in.b.ID, "witness")
	if err != nil {
		t.Fatal(err)
	}
	p.witness = string(snap.ID)
	p.l.boxes[in.b.ID] = &box{Sandbox: in.b, st: st, owner: workers}
	p.l.templates["base"] = &template{id: s.Base}
	p.l.snapshots[snap.ID] = &snapshot{id: snap.ID, source: in.b.ID, name: "witness", st: st, durable: true}
	if err := lab.Until(answerTime, "the first snapshot is durable", func() error {
		all, err := s.API.Snapshots(t.Context(), "")
		if err == nil && (len(all) != 1 || !all[0].Durable) {
			err = fmt.Errorf("they are %+v", all)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// round has clients at work, cuts the power, and looks at what is left.
func (p *power) round(n int) {
	ctx, stop := context.WithTimeout(p.t.Context(), 3*time.Minute)
	defer stop()
	working, done := context.WithCancel(ctx)
	var cut atomic.Bool
	var wg sync.WaitGroup
	answers := make(chan verb)
	for owner := range workers {
		w := &worker{t: p.t, s: p.s, l: p.l, owner: owner, random: rand.New(rand.NewPCG(p.random.Uint64(), 0)), witness: p.witness, cut: &cut, answers: answers}
		wg.Go(func() { w.work(working) })
	}
	if n%3 == 1 {
		b := &builder{t: p.t, s: p.s, l: p.l, random: rand.New(rand.NewPCG(p.random.Uint64(), 0)), dirs: p.dirs, cut: &cut}
		wg.Go(func() { b.work(working) })
	}
	wg.Go(func() { watch(working, p.s, p.l) })
	after := p.moment(answers)
	cut.Store(true)
	err := p.s.CutPower(ctx)
	done()
	wg.Wait()
	if err != nil {
		p.t.Fatal(err)
	}
	p.look(ctx, fmt.Sprintf("cut %d, %s", n+1, after))
}

// look starts the server again and looks at what is left.
func (p *power) look(ctx context.Context, when string) {
	began := time.Now()
	if err := p.s.Start(ctx); err != nil {
		p.t.Fatal(err)
	}
	started := time.Since(began)
	v := &verifier{t: p.t, ctx: ctx, s: p.s, l: p.l, random: p.random}
	v.verify()
	p.t.Logf("%s: started again in %v, looked at in %v, %d sandboxes, %d snapshots", when, started.Round(time.Millisecond),
		(time.Since(began) - started).Round(time.Millisecond), len(p.l.boxes), len(p.l.snapshots))
	p.tidy()
}

// moment waits for when the power is to be cut: any, or just after an answer, when what
// it promised must be so already.
func (p *power) moment(answers <-chan verb) (what string) {
	timer := time.NewTimer(200*time.Millisecond + time.Duration(p.random.Int64N(int64(1500*time.Millisecond))))
	<-timer.C
	wanted := []verb{nothing, verbSnap, verbHalt, verbWake, verbKill}[p.random.IntN(5)]
	if wanted == nothing {
		return "at any moment"
	}
	timer.Reset(2 * time.Second)
	for {
		select {
		case got := <-answers:
			if got == wanted {
				return "after a " + string(got)
			}
		case <-timer.C:
			return "at any moment"
		}
	}
}

// tidy keeps the number of things to look at small, by forgetting what is over.
func (p *power) tidy() {
	for id, b := range p.l.boxes {
		if b.killed && p.random.IntN(2) == 0 {
			delete(p.l.boxes, id)
			p.l.creates = slices.DeleteFunc(p.l.creates, func(c create) bool { return c.id == id })
		}
	}
	for id, sn := range p.l.snapshots {
		source := p.l.boxes[sn.source]
		if string(id) == p.witness || !sn.deleted && source != nil && !source.killed {
			continue
		}
		if !sn.deleted {
			if err := p.s.API.DeleteImage(p.t.Context(), string(id)); err != nil {
				p.t.Errorf("delete %s: %v", id, err)
			}
		}
		delete(p.l.snapshots, id)
	}
}
