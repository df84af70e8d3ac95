package sentry

import (
	"context"
	"fmt"
	"io/fs"
	"os"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"

	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// files has a sentry write its writable layer into a pipe. More room for it stays until
// the life runs on, for mostly it is ended next.
func (k *Keeper) files(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	l, err := k.ref(r, 1)
	if err != nil {
		return nil, nil, err
	}
	// A guest decides what comes and how much; whoever reads bounds that.
	if fi, err := r.Files[0].Stat(); err != nil || fi.Mode()&fs.ModeNamedPipe == 0 {
		return nil, nil, fdrpc.Errorf(keeperapi.CodeInvalid, "files of %s: want a pipe", l.id)
	}
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.need(keeperapi.StateRunning, keeperapi.StatePaused); err != nil {
		return nil, nil, err
	}
	if err := l.makeRoom(); err != nil {
		return nil, nil, fmt.Errorf("files of %s: more memory: %w", l.id, err)
	}
	o := control.TarRootfsUpperLayerOpts{ContainerID: l.id}
	o.FilePayload.Files = r.Files
	err = l.call(boot.FsTarRootfsUpperLayer, &o, nil)
	if l.record().State == keeperapi.StateRunning {
		l.takeRoom()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("files of %s: %w", l.id, err)
	}
	return nil, nil, nil
}
