// Package demo shows in one table what a sandbox can do: a process that lives
// only in memory is killed, brought back with the same PID and state, and cloned.
package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"cubesandbox/probe"
)

// Service is what is shown.
type Service interface {
	probe.Target
	// Clone makes n running copies of a sandbox and returns their ids.
	Clone(ctx context.Context, sandbox string, n int) ([]string, error)
}

// Report is what was seen; its JSON form is that of `cube demo --json`.
type Report struct {
	Steps []Step `json:"steps"`
	// OK says that everything came back as it was.
	OK bool `json:"ok"`
}

// Step is one line of the table.
type Step struct {
	Step string `json:"step"`
	// Millis is how long the verb took; zero for a look.
	Millis  float64 `json:"ms,omitempty"`
	PID     int     `json:"pid,omitempty"`
	Counter int     `json:"counter,omitempty"`
	// Identity is the program's random one.
	Identity string `json:"identity,omitempty"`
	Note     string `json:"note,omitempty"`
}

// demo is one run.
type demo struct {
	s        Service
	ids      []string // sandboxes to end
	snapshot string   // to delete
	Report
}

// Run shows it, tells each step to tell when that is not nil, and takes away
// everything that it made. An error says what did not come back.
func Run(ctx context.Context, s Service, clones int, tell func(Step)) (r Report, err error) {
	d := &demo{s: s}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		for _, id := range d.ids {
			err = errors.Join(err, s.Kill(ctx, id))
		}
		if d.snapshot != "" {
			err = errors.Join(err, s.DeleteSnapshot(ctx, d.snapshot))
		}
		r = d.Report
		r.OK = err == nil
	}()
	step := func(st Step) {
		d.Steps = append(d.Steps, st)
		if tell != nil {
			tell(st)
		}
	}
	return r, d.run(ctx, clones, step)
}

func (d *demo) run(ctx context.Context, clones int, step func(Step)) error {
	source, took, err := d.create(ctx)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	step(Step{Step: "a sandbox is created from base", Millis: took})
	if err := probe.Start(ctx, d.s, source); err != nil {
		return err
	}
	if _, err := probe.Query(ctx, d.s, source, "wait?above=6"); err != nil {
		return err
	}
	held, err := probe.Query(ctx, d.s, source, "hold")
	if err != nil {
		return err
	}
	step(line("a program counts, in memory only", 0, held, ""))

	if d.snapshot, took, err = timed(func() (string, error) { return d.s.Snapshot(ctx, source) }); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	step(Step{Step: "snapshot", Millis: took, Note: "the sandbox runs on"})

	if err := d.killProgram(ctx, source, held.PID); err != nil {
		return err
	}
	step(Step{Step: "the program is ended by SIGKILL", PID: held.PID, Note: "nothing answers any more"})

	_, took, err = timed(func() (string, error) { return "", d.s.Rollback(ctx, source, d.snapshot) })
	if err != nil {
		return fmt.Errorf("rollback: %w", err)
	}
	back, err := d.same(ctx, source, held)
	if err != nil {
		return fmt.Errorf("after rollback: %w", err)
	}
	step(line("rollback", took, back, "same process, same memory"))
	return d.clone(ctx, source, held, clones, step)
}

// clone makes the copies, lets each count on, and compares.
func (d *demo) clone(ctx context.Context, source string, held probe.State, n int, step func(Step)) error {
	var ids []string
	_, took, err := timed(func() (_ string, err error) { ids, err = d.s.Clone(ctx, source, n); return "", err })
	if err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	d.ids = append(d.ids, ids...)
	states := make([]probe.State, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			if states[i], errs[i] = d.same(ctx, id, held); errs[i] != nil {
				return
			}
			if _, errs[i] = probe.Query(ctx, d.s, id, "run"); errs[i] == nil {
				// Each goes its own way: to another number.
				states[i], errs[i] = probe.Query(ctx, d.s, id, "wait?above="+strconv.Itoa(held.Counter+i))
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clones: %w", err)
	}
	step(line(fmt.Sprintf("%d clones of it", n), took, held, "all answer with that state"))
	for i, s := range states {
		step(line("  clone "+ids[i][:min(12, len(ids[i]))], 0, s, "counts on by itself"))
	}
	still, err := d.same(ctx, source, held)
	if err != nil {
		return fmt.Errorf("source after clone: %w", err)
	}
	step(line("the source", 0, still, "is as it was"))
	return nil
}

func (d *demo) create(ctx context.Context) (string, float64, error) {
	id, took, err := timed(func() (string, error) { return d.s.Create(ctx, "") })
	if err == nil {
		d.ids = append(d.ids, id)
	}
	return id, took, err
}

func (d *demo) killProgram(ctx context.Context, sandbox string, pid int) error {
	out, err := d.s.Run(ctx, sandbox, "/bin/kill", "-KILL", strconv.Itoa(pid))
	if err != nil || out.Exit != 0 {
		return errors.Join(err, fmt.Errorf("kill %d: exit status %d", pid, out.Exit))
	}
	if s, err := probe.Query(ctx, d.s, sandbox, "state"); err == nil {
		return fmt.Errorf("the program still answers after SIGKILL: %+v", s)
	}
	return nil
}

// same asks for the state and fails unless it is want.
func (d *demo) same(ctx context.Context, sandbox string, want probe.State) (probe.State, error) {
	got, err := probe.Query(ctx, d.s, sandbox, "state")
	if err == nil && got != want {
		err = fmt.Errorf("sandbox %s: got %+v, want %+v", sandbox, got, want)
	}
	return got, err
}

func timed(verb func() (string, error)) (string, float64, error) {
	began := time.Now()
	s, err := verb()
	return s, float64(time.Since(began).Microseconds()) / 1000, err
}

func line(step string, took float64, s probe.State, note string) Step {
	return Step{Step: step, Millis: took, PID: s.PID, Counter: s.Counter, Identity: s.Identity[:min(12, len(s.Identity))], Note: note}
}
