//go:build !cube_patched

package sentry

import (
	"os"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"

	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// Patched says whether this is built of gVisor with gvisor/patches.
const Patched = false

var errStock = fdrpc.Errorf(keeperapi.CodeInvalid, "this sentry is built of gVisor without our patches: it cannot use pages where they lie")

func share(_ *boot.RestoreOpts, q keeperapi.Restore) error {
	if q.Sources || len(q.Bases) > 0 {
		return errStock
	}
	return nil
}

func saveApart(_ *control.SaveOpts, q keeperapi.Save) error {
	if q.Base != "" {
		return errStock
	}
	return nil
}

func adoptPages(*life, keeperapi.Adopt, *os.File) error { return errStock }

func sharedPages(*life) (shared, error) { return shared{}, nil }

func firstWrites(*life) ([]keeperapi.PageRange, error) { return nil, nil }

func giveBack(*life) (uint64, error) { return 0, nil }
