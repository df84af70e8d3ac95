package gvisor

import (
	"testing"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// TestAPoolsMemberThatDiesStopsNobody: its death is told on the goroutine that reads all
// answers of the keeper, and whoever is asked for memory meanwhile holds the engine.
func TestAPoolsMemberThatDiesStopsNobody(t *testing.T) {
	e, f := fakeEngine(t, 1<<40)
	k := e.keepers.current
	sh := shape{engine: "v1"}
	e.pools.mu.Lock()
	e.pools.ready[sh] = []life{{"aaaa", k}, {"bbbb", k}}
	e.pools.restored["t"] = []member{{life: life{"cccc", k}}}
	e.pools.mu.Unlock()
	answer := make(chan error, 3)
	for _, id := range []string{"aaaa", "cccc"} {
		f.Notify(keeperapi.NoteDied, keeperapi.Life{Life: id, State: keeperapi.StateDead,
			Labels: keeperapi.Labels{Role: keeperapi.RolePool}, Death: &cube.Death{Reason: cube.DeathSignal}})
		if got := soon(t, f.kills, "the keeper is told to forget "+id); got != id {
			t.Errorf("the keeper was told to forget %s, want %s", got, id)
		}
	}
	go func() { answer <- k.call(t.Context(), keeperapi.MethodInfo, nil, nil, nil) }()
	go func() { _, err := e.admission.try(e, 1<<20); answer <- err }()
	go func() { _, err := e.find(nobodyID); answer <- err }()
	refused := 0
	for range 3 {
		if soon(t, answer, "a request, an admission and a search after the death") != nil {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d of them failed, want the search alone", refused)
	}
	e.pools.mu.Lock()
	defer e.pools.mu.Unlock()
	if got := e.pools.ready[sh]; len(got) != 1 || got[0].id != "bbbb" {
		t.Errorf("left are %v, want bbbb", got)
	}
	if got := e.pools.restored["t"]; len(got) != 0 {
		t.Errorf("a dead restored member is left: %v", got)
	}
}
