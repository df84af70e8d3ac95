//go:build cube_patched

package sentry

import (
	"os"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
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
	for _, w := range q.Writes[:min(len(q.Writes), keeperapi.MaxEarlyWrites)] {
		o.ExpectWrites = append(o.ExpectWrites, memmap.FileRange{Start: w.Start, End: w.End})
	}
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

// sharedPages is what a sentry has in pages of images.
func sharedPages(l *life) (shared, error) {
	var u pgalloc.ImagedUsage
	err := l.call(boot.ContMgrImagedUsage, nil, &u)
	return shared{memory: u.Main, files: u.Others, counted: u.OthersCommitted}, err
}

// firstWrites is where a sentry has written first to pages that lay in images.
func firstWrites(l *life) (out []keeperapi.PageRange, err error) {
	var all []memmap.FileRange
	err = l.call(boot.ContMgrEarlyWrites, nil, &all)
	for _, fr := range all[:min(len(all), keeperapi.MaxEarlyWrites)] {
		out = append(out, keeperapi.PageRange{Start: fr.Start, End: fr.End})
	}
	return out, err
}

// giveBackTime bounds how long a life may take to give back memory. One that is not ready then
// goes on by itself; what is asked of it next waits for that.
const giveBackTime = 5 * time.Second

// giveBack has a sentry give back memory, and says how many bytes it shares again.
func giveBack(l *life) (n uint64, err error) {
	err = l.callWithin(giveBackTime, boot.ContMgrGiveBack, nil, &n)
	return n, err
}

// adoptPages has a sentry use what it has saved last where that lies now.
func adoptPages(l *life, q keeperapi.Adopt, pages *os.File) error {
	o := boot.AdoptImageOpts{ImageID: string(q.Base)}
	o.FilePayload.Files = []*os.File{pages}
	return l.call(boot.ContMgrAdoptImage, &o, nil)
}
