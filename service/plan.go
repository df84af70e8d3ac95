package service

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	cube "cubesandbox"
	"cubesandbox/internal/failpoint"
	"cubesandbox/internal/timing"
)

// step is one part of a verb. It can be done again, and it can be seen whether it has
// been done.
type step struct {
	name string
	do   func(context.Context) error
	// undo takes it back, also where it was done in part or not at all; nil: there is
	// nothing to take back.
	undo func(context.Context)
	// done looks and changes nothing; nil: it is not done while there is a plan.
	done func(context.Context) bool
	// sure: it is past the point of no return. What goes wrong is logged, and left to
	// the next start.
	sure bool
}

// never as work.from: a start takes it back, however far it has got.
const never = math.MaxInt

// work is a plan with the steps that follow from its verb. Both are made again from
// the plan and the records when a start finds the plan.
type work struct {
	cube.Plan
	steps []step
	// from is how many steps must have been done for a start to finish the others.
	from int
	// back records that all of it was taken back.
	back func(context.Context) error
	// made are the sandboxes that create and clone have made, once they can be found.
	made []cube.Record
	// late is what went wrong past the point of no return.
	late error
}

func newPlan(v cube.Verb, id cube.SandboxID) cube.Plan {
	return cube.Plan{ID: cube.NewPlanID(), Verb: v, Sandbox: id, BeganAt: time.Now()}
}

// begin writes a plan together with what it brings about first.
func (s *Service) begin(ctx context.Context, w *work, first cube.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := pass(w.Verb, "asked"); err != nil {
		return err
	}
	first.Plans = append(first.Plans, w.Plan)
	s.mu.Lock()
	// Whoever has the turn is alone at work: an older plan is of a verb that has ended,
	// and could not record that.
	for id, old := range s.plans {
		if w.Sandbox != "" && old.Sandbox == w.Sandbox || w.Sandbox == "" && old.Sandbox == "" && old.Image == w.Image {
			first.DropPlans = append(first.DropPlans, id)
		}
	}
	// Known before it is written: it may be on disk although that is reported as failed.
	s.plans[w.ID] = w
	s.mu.Unlock()
	return s.apply(ctx, first)
}

// run does the steps one after the other. Where one fails, it and those before it are
// taken back.
func (s *Service) run(ctx context.Context, w *work) error {
	err := pass(w.Verb, "begun")
	if err != nil {
		s.takeBack(ctx, w)
		return err
	}
	for i, st := range w.steps {
		err := st.do(ctx)
		done := err == nil
		if done {
			err = pass(w.Verb, st.name)
		}
		switch {
		case err == nil:
		case w.happened(ctx, i, done):
			s.log.Error("an error comes too late to take a verb back", "sandbox", w.Sandbox, "verb", w.Verb, "step", st.name, "error", err)
		case st.sure:
			s.log.Error("a step is left to the next start", "sandbox", w.Sandbox, "verb", w.Verb, "step", st.name, "error", err)
			w.late = errors.Join(w.late, fmt.Errorf("%s is done, and could not be completed: %w", w.Verb, err))
		default:
			s.takeBack(ctx, w)
			return err
		}
	}
	return nil
}

// happened reports whether a step with an error is done all the same, and all that is
// left are steps past the point of no return: to take it back would be to lose what it
// has made. done: the error came after it.
func (w *work) happened(ctx context.Context, i int, done bool) bool {
	if i == len(w.steps)-1 {
		return done
	}
	for _, later := range w.steps[i+1:] {
		if !later.sure {
			return false
		}
	}
	// That a sandbox has another life says little of a rollback that failed: the engine
	// may have given it one by itself.
	st := w.steps[i]
	return done || w.Verb != cube.VerbRollback && st.done != nil && st.done(context.WithoutCancel(ctx))
}

// undo takes all steps back, the last first, and records that.
func (w *work) undo(ctx context.Context) error {
	for _, st := range slices.Backward(w.steps) {
		if st.undo != nil {
			st.undo(ctx)
			pass(w.Verb, st.name+"-undone")
		}
	}
	return w.back(ctx)
}

// takeBack undoes a verb that has failed, whatever has become of who asked for it.
func (s *Service) takeBack(ctx context.Context, w *work) {
	if err := w.undo(context.WithoutCancel(ctx)); err != nil {
		s.log.Error("that a verb was taken back could not be recorded; the next start does", "sandbox", w.Sandbox, "verb", w.Verb, "error", err)
	}
}

// conclude finishes a plan that a start has found, or takes it back.
func (s *Service) conclude(ctx context.Context, w *work) error {
	n := w.far(ctx)
	if n < w.from {
		s.log.Warn("a verb that was under way is taken back", "sandbox", w.Sandbox, "verb", w.Verb, "step", n)
		return w.undo(ctx)
	}
	s.log.Warn("a verb that was under way is finished", "sandbox", w.Sandbox, "verb", w.Verb, "step", n)
	for _, st := range w.steps[n:] {
		if err := st.do(ctx); err != nil {
			return err
		}
		pass(w.Verb, st.name)
	}
	return nil
}

// abandoned is the work of a plan that nothing is left of to do.
func (s *Service) abandoned(p cube.Plan) *work {
	w := &work{Plan: p, from: never}
	w.back = func(ctx context.Context) error { return s.apply(ctx, w.end(cube.Batch{})) }
	return w
}

// far is how many steps have been done.
func (w *work) far(ctx context.Context) int {
	n := 0
	for n < len(w.steps) && w.steps[n].done != nil && w.steps[n].done(ctx) {
		n++
	}
	return n
}

// end makes the end of a plan, if there is one, part of a batch.
func (w *work) end(b cube.Batch) cube.Batch {
	if w.ID != "" {
		b.DropPlans = append(b.DropPlans, w.ID)
	}
	return b
}

// apply writes a batch. Whoever asked may go away meanwhile: what has begun is written.
func (s *Service) apply(ctx context.Context, b cube.Batch) error {
	defer timing.Phase(ctx, "store")()
	if err := s.store.Apply(context.WithoutCancel(ctx), b); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range b.DropPlans {
		delete(s.plans, id)
	}
	for _, a := range b.Answers {
		s.answers[a.Key] = a
	}
	for _, k := range b.DropAnswers {
		delete(s.answers, k)
	}
	return nil
}

// commit is apply for what is about to be answered: it survives a power cut.
func (s *Service) commit(ctx context.Context, b cube.Batch) error {
	if err := s.apply(ctx, b); err != nil {
		return err
	}
	defer timing.Phase(ctx, "sync")()
	return s.store.Sync(context.WithoutCancel(ctx))
}

// Plans implements cube.Service.
func (s *Service) Plans(ctx context.Context) ([]cube.PlanState, error) {
	plans, err := s.store.Plans(ctx)
	if err != nil {
		return nil, err
	}
	out := []cube.PlanState{}
	for _, p := range plans {
		s.mu.RLock()
		w := s.plans[p.ID]
		s.mu.RUnlock()
		if w == nil {
			continue // it has just ended
		}
		n := w.far(ctx)
		st := cube.PlanState{Plan: p, Ahead: n >= w.from}
		for i, x := range w.steps {
			st.Steps = append(st.Steps, cube.StepState{Name: x.name, Done: i < n})
		}
		out = append(out, st)
	}
	return out, nil
}

// boundaries are the fail points of each verb: when it is asked for, when its plan is
// written, after each step, and after each undo.
var boundaries = func() map[string]*failpoint.Point {
	all := map[string]*failpoint.Point{}
	for verb, steps := range map[cube.Verb][]string{
		cube.VerbCreate:   {"make", "make-undone", "record"},
		cube.VerbClone:    {"make", "make-undone", "record"},
		cube.VerbSnapshot: {"save", "save-undone", "record"},
		cube.VerbPause:    {"save", "save-undone", "record"},
		cube.VerbResume:   {"restore", "restore-undone", "record", "free"},
		cube.VerbRollback: {"restore", "record"},
		cube.VerbRecover:  {"restore", "restore-undone", "record"},
		cube.VerbKill:     {"end", "record", "free"},
		cube.VerbDelete:   {"hide", "unname", "free"},
	} {
		for _, step := range append([]string{"asked", "begun"}, steps...) {
			name := "service/" + string(verb) + "/" + step
			all[name] = failpoint.New(name)
		}
	}
	return all
}()

func pass(v cube.Verb, step string) error {
	return boundaries["service/"+string(v)+"/"+step].Hit()
}
