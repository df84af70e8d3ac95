package lab

import (
	"context"
	"fmt"
	"path/filepath"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
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

// EarlyWrites is how many bytes of its own a sandbox had, or has taken, where it shared
// memory, early in its life.
func (l *Lab) EarlyWrites(ctx context.Context, id cube.SandboxID) (bytes int64, err error) {
	var said []keeperapi.PageRange
	err = l.askKeeper(ctx, keeperapi.MethodEarlyWrites, id, &said)
	for _, r := range said {
		bytes += int64(r.End - r.Start)
	}
	return bytes, err
}

// GiveBack has a sandbox give back what memory it does not need, as if it had been idle for
// long, and returns how many bytes of its own it shares again.
func (l *Lab) GiveBack(ctx context.Context, id cube.SandboxID) (int64, error) {
	var gave keeperapi.GaveBack
	err := l.askKeeper(ctx, keeperapi.MethodGiveBack, id, &gave)
	return gave.Shared, err
}

// askKeeper calls a method that is about the life of a sandbox.
func (l *Lab) askKeeper(ctx context.Context, method string, id cube.SandboxID, out any) error {
	life, err := l.Life(ctx, id)
	if err != nil {
		return err
	}
	c, err := fdrpc.Dial(ctx, filepath.Join(l.opt.RunDir, "keeper.sock"), keeperapi.Protocol, keeperapi.Version, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Call(ctx, method, keeperapi.Ref{Life: life.Life}, nil, out)
	return err
}
