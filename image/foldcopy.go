package image

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/image/pagetable"
	"cubesandbox/internal/failpoint"
)

var fpFoldCopied = failpoint.New("image/fold/copied")

// copyTogether makes a base, durable, that has the copies which a table speaks of. It
// returns it open, so that it stays, and how many bytes it has.
func (s *Store) copyTogether(ctx context.Context, copies pagetable.Table, p *pace) (_ *heldBase, bytes int64, err error) {
	id := cube.NewSnapshotID()
	w := &Writer{s: s, id: id, base: cube.NewBaseID(id)}
	if w.dir, w.lock, err = s.stage("fold-"); err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			w.Abort()
		}
	}()
	pages, err := w.create(pagesName)
	if err != nil {
		return nil, 0, err
	}
	defer pages.Close()
	if w.Sources, err = w.create(sourcesName); err != nil {
		return nil, 0, err
	}
	if err := pagetable.Write(w.Sources, copies); err != nil {
		return nil, 0, err
	}
	if err := reserve(pages, int64(pagetable.Len(copies.Ranges()[""]))); err != nil {
		return nil, 0, err
	}
	for _, f := range copies.Files {
		if err := s.copyFrom(ctx, cube.BaseID(f.Key), f.Entries, pages, p); err != nil {
			return nil, 0, err
		}
	}
	if err := w.showBase(ctx, pages); err != nil {
		return nil, 0, err
	}
	b, err := s.holdBase(w.base) // before the lock of its directory is let go
	if err != nil {
		return nil, 0, err
	}
	w.close()
	return b, b.m.Image.PagesBytes, nil
}

// showBase publishes the pages and the table as a base.
func (w *Writer) showBase(ctx context.Context, pages *os.File) error {
	parts := []part{{pagesName, pages}, {sourcesName, w.Sources}}
	m := manifest{Boot: w.s.boot, Image: cube.Image{ID: w.id, Base: w.base, Kind: cube.KindBase, Created: time.Now().UTC(), Durable: true}}
	if err := w.verify(ctx, &m, parts); err != nil {
		return err
	}
	if err := w.describe(m, parts, true); err != nil {
		return err
	}
	to := w.s.baseDir(w.base)
	if err := os.Rename(w.dir, to); err != nil {
		return err
	}
	w.dir = to
	return syncDir(w.s.basesDir())
}

// copyFrom copies ranges of the pages of a base, which are read as they were saved or
// not at all.
func (s *Store) copyFrom(ctx context.Context, id cube.BaseID, ranges []pagetable.Entry, to *os.File, p *pace) error {
	b, err := s.holdBase(id)
	if err != nil {
		return inBase(id.Image(), id, err)
	}
	defer b.close()
	if err := s.checkBase(ctx, b); err != nil {
		return err
	}
	want, _ := b.m.file(pagesName)
	r := regionReader{f: b.pages, want: want, buf: make([]byte, region), at: -1, pace: p}
	for _, e := range ranges {
		shared := shareRange(to, b.pages, e)
		for from := e.Start; from < e.End; {
			part, err := r.read(ctx, int64(from), int64(e.End-from))
			if detail := new(damage); errors.As(err, detail) {
				return &cube.CorruptError{Image: b.d.id, File: pagesName, Detail: string(*detail)}
			}
			if err != nil {
				return fmt.Errorf("base %s: %w", id, unavailable(err))
			}
			if !shared {
				if _, err := to.WriteAt(part, int64(e.Offset+from-e.Start)); err != nil {
					return err
				}
			}
			from += uint64(len(part))
		}
	}
	return nil
}

// shareRange has two files share the blocks of a range, where their file system can.
func shareRange(to, from *os.File, e pagetable.Entry) bool {
	return unix.IoctlFileCloneRange(int(to.Fd()), &unix.FileCloneRange{
		Src_fd: int64(from.Fd()), Src_offset: e.Start, Src_length: e.Len(), Dest_offset: e.Offset,
	}) == nil
}

// damage says how what was read differs from what was saved.
type damage string

func (d damage) Error() string { return string(d) }

// regionReader reads a file by regions, each of which must have its sum.
type regionReader struct {
	f    *os.File
	want fileSum
	buf  []byte
	at   int64 // the region that buf has; -1: none
	n    int
	pace *pace
}

// read returns what the file has from a byte on, up to n bytes and the end of a region.
func (r *regionReader) read(ctx context.Context, from, n int64) ([]byte, error) {
	if i := from / region; i != r.at {
		if err := r.pace.wait(ctx, region); err != nil {
			return nil, err
		}
		r.at = -1
		k, err := r.f.ReadAt(r.buf[:min(region, r.want.Size-i*region)], i*region)
		if err != nil && err != io.EOF {
			return nil, err
		}
		if crc32.Checksum(r.buf[:k], castagnoli) != r.want.CRC[i] {
			return nil, damage(fmt.Sprintf("its content differs from what was saved between bytes %d and %d", i*region, i*region+int64(k)))
		}
		r.at, r.n = i, k
	}
	in := from % region
	return r.buf[in:min(in+n, int64(r.n))], nil
}

// pace bounds how much is done in a second.
type pace struct {
	perSecond int64 // bytes; 0: no bound
	began     time.Time
	done      int64
}

func newPace(perSecond int64) *pace { return &pace{perSecond: perSecond, began: time.Now()} }

// wait returns when so many bytes more may be read and written.
func (p *pace) wait(ctx context.Context, bytes int64) error {
	if p.perSecond > 0 {
		p.done += bytes
		due := p.began.Add(time.Duration(float64(p.done) / float64(p.perSecond) * float64(time.Second)))
		if left := time.Until(due); left > 0 {
			timer := time.NewTimer(left)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
	}
	return ctx.Err()
}
