//go:build cube_patched

package sentry

import (
	"os"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"

	"cubesandbox/gvisor/keeperapi"
)

// What needs gVisor with gvisor/patches is in this file; stock.go has what stands for it
// without them.

// Patched says whether this is built of gVisor with gvisor/patches.
const Patched = true

// share has pages used where they lie.
func share(o *boot.RestoreOpts, q keeperapi.Restore) error {
	if q.Base == "" {
		return nil
	}
	o.HaveImageTable = q.Sources
	o.ImageIDs = []string{string(q.Base)}
	for _, b := range q.Bases {
		o.ImageIDs = append(o.ImageIDs, string(b))
	}
	return nil
}

// saveApart has pages not saved that lie in an image already.
func saveApart(o *control.SaveOpts, q keeperapi.Save) error {
	o.ImageID, o.MaxImages = string(q.Base), q.Most
	return nil
}

// adoptPages has a sentry use what it has saved last where that lies now.
func adoptPages(l *life, q keeperapi.Adopt, pages *os.File) error {
	o := boot.AdoptImageOpts{ImageID: string(q.Base)}
	o.FilePayload.Files = []*os.File{pages}
	return l.call(boot.ContMgrAdoptImage, &o, nil)
}
