package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	cube "cubesandbox"
	"cubesandbox/image/pagetable"
)

const (
	// leastDead is how much of the pages of a deleted image nothing may need before they
	// are worth copying, in bytes; more than half of them it must be too.
	leastDead = 1 << 20
	// deep is how many bases an image has that gets fewer, and shallow how many of them
	// stay.
	deep    = MaxBases * 3 / 4
	shallow = 4
)

// Fold copies together what images have in pages that are mostly dead, those of deleted
// images, or in those of many others, and gives the images tables that name the copies;
// the pages that nothing needs then are freed. Nobody is stopped: who has memory in the
// old pages keeps them. It reads and writes perSecond bytes at most; 0: as fast as it
// goes. What a Fold has copied that was ended, the next one goes on with. One at a time
// works in a store: while another does, nothing is done.
func (s *Store) Fold(ctx context.Context, perSecond int64) (cube.Folded, error) {
	lock, err := os.Open(s.basesDir())
	if err != nil {
		return cube.Folded{}, fmt.Errorf("fold: %w", unavailable(err))
	}
	defer lock.Close()
	if err := flock(lock, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = nil
		}
		return cube.Folded{}, err
	}
	f := &folding{s: s, pace: newPace(perSecond), tables: map[cube.ImageID]imageTable{}, fixed: map[cube.BaseID]bool{}, moved: map[cube.ImageID]bool{}}
	err = f.run(ctx)
	f.done.Images = len(f.moved)
	if err != nil {
		return f.done, fmt.Errorf("fold: %w", noSpace(err))
	}
	return f.done, nil
}

// imageTable is the table of an image, and the file that it was read from.
type imageTable struct {
	pagetable.Table
	file fileSum
}

// folding is one run.
type folding struct {
	s    *Store
	pace *pace
	// tables are those of the published images that have bases.
	tables map[cube.ImageID]imageTable
	// fixed are bases that an image names whose table stays as it is.
	fixed map[cube.BaseID]bool
	moved map[cube.ImageID]bool // images that have another table
	done  cube.Folded
}

func (f *folding) run(ctx context.Context) error {
	if err := f.read(ctx); err != nil || len(f.tables) == 0 {
		return err
	}
	if err := f.goOn(ctx); err != nil {
		return err
	}
	groups, err := f.dead()
	if err != nil {
		return err
	}
	for _, g := range groups {
		if err := f.fold(ctx, g); err != nil {
			return err
		}
	}
	for _, id := range sorted(f.tables) {
		if g := deepest(f.tables[id].Table); g != nil {
			if err := f.fold(ctx, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads the tables.
func (f *folding) read(ctx context.Context) error {
	ids, err := f.s.ids()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		o, err := f.s.outline(id)
		if errors.Is(err, cube.ErrNotFound) || err == nil && len(o.image.Bases) == 0 {
			continue
		}
		if errors.Is(err, cube.ErrCorrupt) && !f.s.hasTable(id) {
			continue
		}
		if err != nil {
			return err // what it has memory in is not known
		}
		t, err := f.s.readTableOf(ctx, id)
		if errors.Is(err, cube.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		if err != nil { // it is hidden, or damaged
			for _, base := range o.image.Bases {
				f.fixed[base] = true
			}
			continue
		}
		f.tables[id] = t
	}
	return nil
}

// goOn has images use copies that were made before for images like them.
func (f *folding) goOn(ctx context.Context) error {
	ids, err := f.s.bases()
	if err != nil {
		return err
	}
	for _, id := range ids {
		copies, err := f.s.copiesIn(ctx, id)
		if err != nil {
			return err
		}
		if len(copies.Files) > 0 {
			if err := f.use(ctx, id, copies); err != nil {
				return err
			}
		}
	}
	return nil
}

// group is what is copied together: ranges of bases that the same images name.
type group map[string][]pagetable.Range

// live are the ranges of each base that images name.
func (f *folding) live() (live map[string][]pagetable.Range, users map[string][]cube.ImageID) {
	live, users = map[string][]pagetable.Range{}, map[string][]cube.ImageID{}
	for id, t := range f.tables {
		for name, ranges := range t.Ranges() {
			if name != "" {
				live[name] = pagetable.Union(append(live[name], ranges...))
				users[name] = append(users[name], id)
			}
		}
	}
	for _, ids := range users {
		slices.Sort(ids)
	}
	return live, users
}

// dead are the pages of deleted images that are mostly dead and that nobody has open. A
// group's are named by the same images: an image gets no pages to see that it did not
// have as a base before.
func (f *folding) dead() ([]group, error) {
	live, users := f.live()
	ids, err := f.s.bases()
	if err != nil {
		return nil, err
	}
	groups := map[string]group{}
	for _, id := range ids {
		name := string(id)
		if f.fixed[id] || len(live[name]) == 0 {
			continue
		}
		size, open, err := f.s.idle(id)
		if err != nil {
			return nil, err
		}
		if dead := size - int64(pagetable.Len(live[name])); open || dead < leastDead || 2*dead < size {
			continue
		}
		key := fmt.Sprint(users[name])
		if groups[key] == nil {
			groups[key] = group{}
		}
		groups[key][name] = live[name]
	}
	var out []group
	for _, g := range groups {
		out = append(out, g)
	}
	return out, nil
}

// deepest are, of an image with many bases, those in which it has the least memory; nil
// for another image.
func deepest(t pagetable.Table) group {
	if len(t.Names) <= deep {
		return nil
	}
	ranges := t.Ranges()
	names := slices.Clone(t.Names)
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(pagetable.Len(ranges[a]), pagetable.Len(ranges[b]))
	})
	g := group{}
	for _, name := range names[:len(names)-shallow] {
		g[name] = ranges[name]
	}
	return g
}

// fold copies a group, has images use the copies, and frees what nothing needs then.
func (f *folding) fold(ctx context.Context, g group) error {
	copies := pagetable.Copies(g)
	if !slices.ContainsFunc(sorted(f.tables), func(id cube.ImageID) bool { return fits(f.tables[id].Table, copies) }) {
		return nil // another group had them
	}
	b, copied, err := f.s.copyTogether(ctx, copies, f.pace)
	var damaged *cube.CorruptError
	if errors.As(err, &damaged) {
		return nil // whoever uses it hears of that
	}
	if err != nil {
		return err
	}
	defer b.close()
	f.done.Copied += copied
	if err := fpFoldCopied.Hit(); err != nil {
		return err
	}
	return f.use(ctx, b.m.Image.Base, copies)
}

// use gives each image that fits a table that names copies.
func (f *folding) use(ctx context.Context, id cube.BaseID, copies pagetable.Table) error {
	for _, of := range sorted(f.tables) {
		t := f.tables[of]
		if !fits(t.Table, copies) {
			continue
		}
		moved, err := f.s.replaceTable(ctx, of, t, t.Moved(string(id), copies))
		if err != nil {
			return err
		}
		if moved.Files == nil { // it is another by now, or gone
			delete(f.tables, of)
			continue
		}
		f.tables[of] = moved
		f.moved[of] = true
	}
	for _, file := range copies.Files {
		freed, err := f.s.freeBase(cube.BaseID(file.Key))
		if err != nil {
			return err
		}
		f.done.Freed += freed
	}
	return nil
}

// fits reports whether an image has memory in each of the bases that there are copies
// of, and all of that was copied.
func fits(t pagetable.Table, copies pagetable.Table) bool {
	ranges := t.Ranges()
	for _, c := range copies.Files {
		if len(ranges[c.Key]) == 0 {
			return false
		}
		for _, r := range ranges[c.Key] {
			if !slices.ContainsFunc(c.Entries, func(e pagetable.Entry) bool { return e.Start <= r.From && r.To <= e.End }) {
				return false
			}
		}
	}
	return true
}

func sorted(tables map[cube.ImageID]imageTable) []cube.ImageID {
	ids := make([]cube.ImageID, 0, len(tables))
	for id := range tables {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
