package lab

import (
	"context"
	"fmt"

	cube "cubesandbox"
	"cubesandbox/internal/footprint"
	"cubesandbox/internal/local"
)

// Memory is what these sandboxes take of the host: their kernels with all stubs, what
// they share counted once. See package footprint. What is shared with processes that are
// not of these sandboxes is counted in part.
func (l *Lab) Memory(ctx context.Context, ids ...cube.SandboxID) (footprint.Footprint, error) {
	var pids []int
	for _, id := range ids {
		life, err := l.Life(ctx, id)
		if err != nil {
			return footprint.Footprint{}, fmt.Errorf("memory of the sandboxes: %w", err)
		}
		pids = append(pids, life.PID)
	}
	return footprint.Of(pids...)
}

// EngineVersion is that of the engine which runs here. It has "-stock-" in it where gVisor
// is not patched.
func (l *Lab) EngineVersion(ctx context.Context) (string, error) {
	h, err := local.LookAt(ctx, l.opt.RunDir)
	return h.Engine, err
}
