package probe

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Options say how the probe runs.
type Options struct {
	// Rounds is how often; at least 1.
	Rounds int
	// Environment names where this ran, in the report.
	Environment string
	// Each is called after every round; nil for not.
	Each func(Round)
}

// Report is what a probe gives; its JSON form is what `cube probe --json` prints.
type Report struct {
	Result      string  `json:"result"` // Pass or Fail
	Environment string  `json:"environment"`
	Rounds      []Round `json:"rounds"`
	// What this probe made and could not take away again.
	SandboxesRemaining int `json:"new_sandboxes_remaining"`
	SnapshotsRemaining int `json:"new_snapshots_remaining"`
	// Remaining names them.
	Remaining []string `json:"remaining,omitempty"`
	Error     string   `json:"error,omitempty"`
}

// Results of a report.
const (
	Pass = "PASS"
	Fail = "FAIL"
)

// Round is one pass through the experiment.
type Round struct {
	Round int `json:"round"`
	// Checks says for each check that was reached whether it held.
	Checks map[string]bool `json:"checks"`
	// States are the five values at each moment, identities as short hashes.
	States map[string]State `json:"states"`
	// Seconds is how long each verb took.
	Seconds map[string]float64 `json:"seconds"`
	Source  string             `json:"source,omitempty"`
	Copy    string             `json:"copy,omitempty"`
	// Snapshot is the id of the saved state.
	Snapshot string `json:"snapshot,omitempty"`
	// Error is what ended the round before its last check, or cleaning up after it.
	Error string `json:"error,omitempty"`
}

// Passed reports whether every check was reached and held.
func (r Round) Passed() bool {
	for _, c := range checks {
		if !r.Checks[c] {
			return false
		}
	}
	return r.Error == ""
}

// cleanupTime bounds cleaning up, which also happens after ctx has ended.
const cleanupTime = 30 * time.Second

// Run probes t. It returns a report in every case; what failed stands in it.
func Run(ctx context.Context, t Target, o Options) Report {
	r := Report{Result: Fail, Environment: o.Environment, Rounds: []Round{}}
	sandboxes, snapshots, err := inventory(ctx, t)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	passed := true
	for n := 1; n <= o.Rounds && ctx.Err() == nil; n++ {
		round := runRound(ctx, t, n)
		passed = passed && round.Passed()
		r.Rounds = append(r.Rounds, round)
		if o.Each != nil {
			o.Each(round)
		}
	}
	if err := ctx.Err(); err != nil {
		r.Error = fmt.Sprintf("ended after %d of %d rounds: %v", len(r.Rounds), o.Rounds, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	nowSandboxes, nowSnapshots, err := inventory(ctx, t)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	left := added(sandboxes, nowSandboxes)
	leftSnapshots := added(snapshots, nowSnapshots)
	r.SandboxesRemaining, r.SnapshotsRemaining = len(left), len(leftSnapshots)
	r.Remaining = append(left, leftSnapshots...)
	if passed && len(r.Rounds) > 0 && len(r.Remaining) == 0 && r.Error == "" {
		r.Result = Pass
	}
	return r
}

func inventory(ctx context.Context, t Target) (sandboxes, snapshots []string, err error) {
	if sandboxes, err = t.Sandboxes(ctx); err != nil {
		return nil, nil, fmt.Errorf("list sandboxes: %w", err)
	}
	if snapshots, err = t.Snapshots(ctx); err != nil {
		return nil, nil, fmt.Errorf("list snapshots: %w", err)
	}
	return sandboxes, snapshots, nil
}

func added(before, after []string) []string {
	return slices.DeleteFunc(slices.Clone(after), func(id string) bool { return slices.Contains(before, id) })
}
