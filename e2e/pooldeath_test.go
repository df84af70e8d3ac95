package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/local"
)

// members are the lives of pools that have not ended.
func members(ctx context.Context) ([]keeperapi.Life, error) {
	h, err := local.LookAt(ctx, l.Options().RunDir)
	var out []keeperapi.Life
	for _, life := range h.Lives {
		if life.Labels.Role == keeperapi.RolePool && life.State != keeperapi.StateDead {
			out = append(out, life)
		}
	}
	return out, err
}

// TestKillOfPoolMembersHoldsNobodyUp: the engine answers at once, and makes others.
func TestKillOfPoolMembersHoldsNobodyUp(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	before, c := l.Check(t, id), connect(t, id)
	noError(t, l.Engine.SetPools(t.Context(), cube.Pools{Booted: 1, Restored: map[cube.ImageID]int{l.Witness: 1}}), "set pools")
	defer func() { noError(t, l.Engine.SetPools(context.Background(), cube.Pools{}), "empty the pools") }()
	noError(t, l.Engine.PoolsReady(t.Context()), "fill the pools")
	first, err := members(t.Context())
	noError(t, err, "find the members")
	if len(first) != 2 {
		t.Fatalf("%d members, want two: %+v", len(first), first)
	}
	dead := map[string]bool{}
	for _, m := range first {
		dead[m.Life] = true
		noError(t, lab.KillHard(m.PID), "kill a member")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = l.Engine.Usage(ctx, id)
	noError(t, err, "usage right after the deaths")
	s, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Witness})
	noError(t, err, "create right after the deaths")
	_, err = l.Run(ctx, s.ID, "/bin/true")
	noError(t, err, "run")
	noError(t, l.Engine.Kill(ctx, s.ID), "kill")
	answersAsBefore(t, id, before, c)
	again(t, "there are two others", func(ctx context.Context) error {
		now, err := members(ctx)
		for _, m := range now {
			if dead[m.Life] {
				return fmt.Errorf("%s is there", m.Life)
			}
		}
		if err == nil && len(now) != 2 {
			err = fmt.Errorf("%d members: %+v", len(now), now)
		}
		return err
	})
}
