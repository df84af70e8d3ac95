package durable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cubesandbox/e2e/lab"
	"cubesandbox/internal/failpoint"
)

// boundary is a moment in a verb: just after a step of it.
type boundary struct {
	verb  string
	point string
	pass  int
}

func (b boundary) String() string { return fmt.Sprintf("%s at %s@%d", b.verb, b.point, b.pass) }

// TestAPowerCutAtABoundaryOfAVerbLeavesItDoneOrNot: the server is stopped at a fail
// point in the midst of a verb, and the power is cut at that moment. The verb is then
// done or not, and all else is as TestAPowerCutLosesNothingThatWasAnswered has it.
func TestAPowerCutAtABoundaryOfAVerbLeavesItDoneOrNot(t *testing.T) {
	p := openPower(t, lab.Chance(t, uint64(time.Now().UnixNano())))
	all := p.boundaries()
	p.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if n, ok := map[string]int{"": 3, "ci": 15}[lab.Form()]; ok {
		all = all[:min(n, len(all))]
	}
	died := 0
	for _, b := range all {
		reached := false
		for tries, before := 0, p.s.Proven(); p.s.Proven() == before; tries++ {
			p.proves(tries < 3)
			reached = p.cutAt(b)
			if t.Failed() {
				t.Fatalf("%v; the server's log:\n%s", b, p.s.Warnings(20))
			}
		}
		if reached {
			died++
		}
	}
	p.tell()
	if died < len(all)*3/4 {
		t.Errorf("of %d boundaries only %d were passed", len(all), died)
	}
}

// verbs are what is cut, on a running sandbox with a snapshot.
var verbs = map[string]func(p *power, w *worker, ctx context.Context, b *box) error{
	"create":   func(_ *power, w *worker, ctx context.Context, _ *box) error { return w.create(ctx) },
	"snapshot": func(_ *power, w *worker, ctx context.Context, b *box) error { return w.snapshot(ctx, b) },
	"pause":    func(_ *power, w *worker, ctx context.Context, b *box) error { return w.pause(ctx, b) },
	"resume":   func(_ *power, w *worker, ctx context.Context, b *box) error { return w.resume(ctx, b) },
	"clone":    func(_ *power, w *worker, ctx context.Context, b *box) error { return w.clone(ctx, b) },
	"kill":     func(_ *power, w *worker, ctx context.Context, b *box) error { return w.kill(ctx, b) },
	"rollback": func(p *power, w *worker, ctx context.Context, b *box) error {
		return w.rollback(ctx, b, p.l.snapshotsOf(b.ID)[0])
	},
	"delete": func(p *power, w *worker, ctx context.Context, b *box) error {
		return w.deleteSnapshot(ctx, p.l.snapshotsOf(b.ID)[0])
	},
}

// prepared is a running sandbox with a durable snapshot, or a paused one.
func (p *power) prepared(ctx context.Context, w *worker, paused bool) *box {
	p.t.Helper()
	for len(p.l.of(w.owner)) == 0 {
		p.must(w.create(ctx))
	}
	b := p.l.of(w.owner)[0]
	if b.paused && !paused {
		p.must(w.resume(ctx, b))
	}
	if !b.paused {
		p.must(w.step(ctx, b))
	}
	for len(p.l.snapshotsOf(b.ID)) == 0 {
		p.must(w.snapshot(ctx, b))
	}
	if !b.paused && paused {
		p.must(w.pause(ctx, b))
	}
	p.must(lab.Until(answerTime, "all snapshots are durable", func() error {
		all, err := p.s.API.Snapshots(ctx, "")
		for _, sn := range all {
			if !sn.Durable {
				return fmt.Errorf("%s is not", sn.ID)
			}
		}
		p.l.durable(all)
		return err
	}))
	return b
}

func (p *power) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *power) worker(cut *atomic.Bool) *worker {
	return &worker{t: p.t, s: p.s, l: p.l, random: rand.New(rand.NewPCG(p.random.Uint64(), 0)), witness: p.witness, cut: cut}
}

// restarted starts the server anew with a variable.
func (p *power) restarted(ctx context.Context, env string) {
	p.t.Helper()
	p.must(p.s.Signal(syscall.SIGTERM))
	p.s.SetEnv(env)
	p.must(p.s.Start(ctx))
}

// boundaries has each verb done once, and notes which fail points it passes.
func (p *power) boundaries() []boundary {
	p.t.Helper()
	ctx := p.t.Context()
	trace := filepath.Join(p.t.TempDir(), "trace")
	var cut atomic.Bool
	w := p.worker(&cut)
	var all []boundary
	for _, name := range slices.Sorted(maps.Keys(verbs)) {
		verb := verbs[name]
		b := p.prepared(ctx, w, name == "resume")
		p.must(os.RemoveAll(trace))
		p.restarted(ctx, failpoint.TraceEnv+"="+trace)
		before := passed(p.t, trace)
		p.must(verb(p, w, ctx, b))
		all = append(all, boundariesOf(name, before, passed(p.t, trace))...)
	}
	dir := p.dirs[0]
	p.must(os.RemoveAll(trace))
	id, err := buildTemplate(p.s, dir, failpoint.TraceEnv+"="+trace)
	p.must(err)
	all = append(all, boundariesOf("template", nil, passed(p.t, trace))...)
	p.must(p.s.API.DeleteImage(ctx, string(id)))
	return all
}

// passed are the lines of a trace.
func passed(t *testing.T, trace string) []string {
	t.Helper()
	b, err := os.ReadFile(trace)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// boundariesOf are the passes since before, counted from the start of the program. The
// store's are not among them: it is at work at any time.
func boundariesOf(verb string, before, now []string) (out []boundary) {
	count := map[string]int{}
	for i, point := range now {
		count[point]++
		if i >= len(before) && !strings.HasPrefix(point, "sqlite/") {
			out = append(out, boundary{verb, point, count[point]})
		}
	}
	return out
}

// cutAt cuts the power at a boundary, and says whether it was reached.
func (p *power) cutAt(at boundary) (reached bool) {
	ctx, stop := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer stop()
	var cut atomic.Bool
	w := p.worker(&cut)
	b := p.prepared(ctx, w, at.verb == "resume")
	armed := fmt.Sprintf("%s=%s=kill@%d", failpoint.Env, at.point, at.pass)
	if at.verb == "template" {
		builder := &builder{t: p.t, s: p.s, l: p.l, random: p.random, dirs: p.dirs[:1], cut: &cut, env: []string{armed}}
		p.forgetTemplates(ctx)
		reached = builder.one(ctx) != nil
	} else {
		p.restarted(ctx, armed)
		cut.Store(true)
		err := verbs[at.verb](p, w, ctx, b)
		reached = err != nil || p.dies(ctx)
		p.s.SetEnv()
	}
	torn := p.random.IntN(2) == 0
	if torn {
		p.must(commit(p.s.Where.StateDir))
	}
	p.must(p.s.CutPower(ctx))
	p.t.Logf("%v: reached: %t, torn: %t", at, reached, torn)
	p.look(ctx, at.String())
	return reached
}

// forgetTemplates deletes those that were built, so that they are built again.
func (p *power) forgetTemplates(ctx context.Context) {
	p.t.Helper()
	all, err := p.s.API.Templates(ctx)
	p.must(err)
	for _, tpl := range all {
		if tpl.ID != p.s.Base {
			p.must(p.s.API.DeleteImage(ctx, string(tpl.ID)))
		}
	}
	for _, dir := range p.dirs {
		delete(p.l.templates, filepath.Base(dir))
	}
}

// commit has the file system commit what directories say, and the files' lengths, but
// not what is in them: so it is when somebody syncs something else. Files are torn then.
func commit(dir string) error {
	path := filepath.Join(dir, "other")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteString("something else")
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(path))
}

// dies waits a moment for a server that is killed after its answer.
func (p *power) dies(ctx context.Context) bool {
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	_, err := p.s.WaitEnd(ctx)
	return err == nil
}
