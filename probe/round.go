package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// The checks of a round, in the order in which they are made.
const (
	CheckHeldStill      = "held_before_snapshot"
	CheckGrewAfter      = "grew_after_snapshot"
	CheckKilled         = "query_failed_after_sigkill"
	CheckRollbackState  = "rollback_state_equal"
	CheckRollbackFile   = "rollback_file_equal"
	CheckRollbackGrew   = "rollback_runs_on"
	CheckSourceGone     = "source_gone"
	CheckCopyOtherID    = "new_sandbox_has_other_id"
	CheckCopyState      = "new_sandbox_state_equal"
	CheckCopyFile       = "new_sandbox_file_equal"
	CheckCopyGrew       = "new_sandbox_runs_on"
	CheckSandboxRemoved = "new_sandbox_removed"
	CheckSnapshotGone   = "snapshot_removed"
)

var checks = []string{
	CheckHeldStill, CheckGrewAfter, CheckKilled, CheckRollbackState, CheckRollbackFile, CheckRollbackGrew,
	CheckSourceGone, CheckCopyOtherID, CheckCopyState, CheckCopyFile, CheckCopyGrew, CheckSandboxRemoved, CheckSnapshotGone,
}

const (
	markerPath     = "/root/cube-probe-marker"
	beforeSnapshot = "before-snapshot"
	afterSnapshot  = "after-snapshot"
)

// round is one that runs.
type round struct {
	Round
	t Target
}

func runRound(ctx context.Context, t Target, n int) Round {
	r := &round{t: t, Round: Round{Round: n, Checks: map[string]bool{}, States: map[string]State{}, Seconds: map[string]float64{}}}
	err := r.experiment(ctx)
	err = errors.Join(err, r.cleanUp(ctx))
	if err != nil {
		r.Error = err.Error()
	}
	return r.Round
}

// timed runs a verb and notes how long it took.
func (r *round) timed(name string, verb func() error) error {
	began := time.Now()
	err := verb()
	r.Seconds[name] = time.Since(began).Seconds()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// query asks the program and notes what it said under a name.
func (r *round) query(ctx context.Context, sandbox, what, name string) (State, error) {
	s, err := Query(ctx, r.t, sandbox, what)
	if err == nil {
		r.States[name] = s.published()
	}
	return s, err
}

func (r *round) experiment(ctx context.Context) error {
	held, err := r.save(ctx)
	if err != nil {
		return err
	}
	if err := r.destroy(ctx, held); err != nil {
		return err
	}
	if err := r.rollback(ctx, held); err != nil {
		return err
	}
	return r.copy(ctx, held)
}

// save starts the program and takes the snapshot while its counter is held.
func (r *round) save(ctx context.Context) (held State, err error) {
	if err := r.timed("create", func() (err error) { r.Source, err = r.t.Create(ctx, ""); return err }); err != nil {
		return held, err
	}
	if err := r.t.WriteFile(ctx, r.Source, markerPath, []byte(beforeSnapshot)); err != nil {
		return held, fmt.Errorf("write the marker: %w", err)
	}
	if err := Start(ctx, r.t, r.Source); err != nil {
		return held, err
	}
	if _, err := r.query(ctx, r.Source, "wait?above=2", "started"); err != nil {
		return held, err
	}
	first, err := r.query(ctx, r.Source, "hold", "held")
	if err != nil {
		return held, err
	}
	if held, err = r.query(ctx, r.Source, "state", "before_snapshot"); err != nil {
		return held, err
	}
	r.Checks[CheckHeldStill] = held == first && held.Held
	return held, r.timed("snapshot", func() (err error) { r.Snapshot, err = r.t.Snapshot(ctx, r.Source); return err })
}

// destroy lets the program run on, changes the file, and kills it.
func (r *round) destroy(ctx context.Context, held State) error {
	grown, err := r.runOn(ctx, r.Source, held, "after_snapshot")
	if err != nil {
		return err
	}
	r.Checks[CheckGrewAfter] = grown
	if err := r.t.WriteFile(ctx, r.Source, markerPath, []byte(afterSnapshot)); err != nil {
		return fmt.Errorf("change the marker: %w", err)
	}
	out, err := r.t.Run(ctx, r.Source, "/bin/kill", "-KILL", strconv.Itoa(held.PID))
	if err != nil {
		return fmt.Errorf("kill pid %d: %w", held.PID, err)
	}
	if out.Exit != 0 {
		return fmt.Errorf("kill pid %d: exit status %d: %.200s", held.PID, out.Exit, out.Stderr)
	}
	_, err = Query(ctx, r.t, r.Source, "state")
	var curl *curlError
	r.Checks[CheckKilled] = errors.As(err, &curl) && curl.status == couldNotConnect
	if err != nil && curl == nil {
		return err
	}
	return nil
}

func (r *round) rollback(ctx context.Context, held State) error {
	if err := r.timed("rollback", func() error { return r.t.Rollback(ctx, r.Source, r.Snapshot) }); err != nil {
		return err
	}
	got, err := r.query(ctx, r.Source, "state", "after_rollback")
	if err != nil {
		return err
	}
	r.Checks[CheckRollbackState] = got == held
	if r.Checks[CheckRollbackFile], err = r.marker(ctx, r.Source); err != nil {
		return err
	}
	r.Checks[CheckRollbackGrew], err = r.runOn(ctx, r.Source, held, "rollback_grown")
	return err
}

// copy ends the source and brings the program back in another sandbox.
func (r *round) copy(ctx context.Context, held State) error {
	source := r.Source
	if err := r.timed("kill", func() error { return r.t.Kill(ctx, source) }); err != nil {
		return err
	}
	there, err := r.t.Sandboxes(ctx)
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	r.Checks[CheckSourceGone] = !slices.Contains(there, source)
	if err := r.timed("create_from_snapshot", func() (err error) { r.Copy, err = r.t.Create(ctx, r.Snapshot); return err }); err != nil {
		return err
	}
	r.Checks[CheckCopyOtherID] = r.Copy != source
	got, err := r.query(ctx, r.Copy, "state", "new_sandbox")
	if err != nil {
		return err
	}
	r.Checks[CheckCopyState] = got == held
	if r.Checks[CheckCopyFile], err = r.marker(ctx, r.Copy); err != nil {
		return err
	}
	r.Checks[CheckCopyGrew], err = r.runOn(ctx, r.Copy, held, "new_sandbox_grown")
	return err
}

// runOn releases the counter and reports whether the same program counted on.
func (r *round) runOn(ctx context.Context, sandbox string, held State, name string) (bool, error) {
	if _, err := Query(ctx, r.t, sandbox, "run"); err != nil {
		return false, err
	}
	got, err := r.query(ctx, sandbox, fmt.Sprintf("wait?above=%d", held.Counter+2), name)
	return err == nil && got.Identity == held.Identity && got.PID == held.PID && got.Counter > held.Counter, err
}

func (r *round) marker(ctx context.Context, sandbox string) (bool, error) {
	b, err := r.t.ReadFile(ctx, sandbox, markerPath)
	if err != nil {
		return false, fmt.Errorf("read the marker: %w", err)
	}
	return string(b) == beforeSnapshot, nil
}

// cleanUp ends what the round made and has not ended yet, also after ctx has ended.
func (r *round) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	there, err := r.t.Sandboxes(ctx)
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	var failed []error
	for _, id := range []string{r.Source, r.Copy} {
		if id != "" && slices.Contains(there, id) {
			failed = append(failed, r.t.Kill(ctx, id))
		}
	}
	if r.Snapshot != "" {
		failed = append(failed, r.t.DeleteSnapshot(ctx, r.Snapshot))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	sandboxes, snapshots, err := inventory(ctx, r.t)
	r.Checks[CheckSandboxRemoved] = err == nil && !slices.Contains(sandboxes, r.Source) && !slices.Contains(sandboxes, r.Copy)
	r.Checks[CheckSnapshotGone] = err == nil && !slices.Contains(snapshots, r.Snapshot)
	return err
}
