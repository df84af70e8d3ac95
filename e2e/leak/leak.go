// Package leak finds what a test left on the machine: processes, descriptors of
// our long-lived processes, goroutines, mounts, cgroups, sockets and files.
package leak

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Where says what is ours.
type Where struct {
	// RunDir and StateDir are an engine's; everything below them counts.
	RunDir, StateDir string
	// Cgroup is the node below each cgroup mount, relative to it.
	Cgroup string
	// PIDs are processes whose descriptors count too.
	PIDs []int
}

// State is what is there at one moment: for each kind a count of each line.
type State map[string]map[string]int

// Take notes what is there. Processes that end meanwhile are no error.
func Take(w Where) (State, error) {
	ps, err := findProcesses(w)
	if err != nil {
		return nil, err
	}
	s := State{"process": ps.lines(), "goroutine": goroutines()}
	s["descriptor"] = ps.descriptors()
	var errs [4]error
	s["mount"], errs[0] = mounts(w)
	s["cgroup"], errs[1] = cgroups(w.Cgroup)
	s["socket"], errs[2] = sockets(w.RunDir)
	s["file"], errs[3] = files(w.RunDir, w.StateDir)
	return s, errors.Join(errs[:]...)
}

// Diff returns what now has more of than before ("+") or less ("-"), one line
// each, in order; empty when nothing differs.
func Diff(before, now State) []string {
	var out []string
	kinds := slices.Sorted(maps.Keys(now))
	for _, kind := range kinds {
		all := maps.Clone(before[kind])
		if all == nil {
			all = map[string]int{}
		}
		maps.Copy(all, now[kind])
		for _, line := range slices.Sorted(maps.Keys(all)) {
			a, b := before[kind][line], now[kind][line]
			switch {
			case b > a:
				out = append(out, fmt.Sprintf("+%d %s %s", b-a, kind, line))
			case b < a:
				out = append(out, fmt.Sprintf("-%d %s %s", a-b, kind, line))
			}
		}
	}
	return out
}

// Check compares until nothing differs from before or patience is over, for what
// is just going away; then it says what differs.
func Check(w Where, before State, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := Take(w)
		if err != nil {
			return err
		}
		diff := Diff(before, now)
		if len(diff) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New(strings.Join(diff, "\n"))
		}
		<-tick.C
	}
}
