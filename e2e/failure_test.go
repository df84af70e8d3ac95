package e2e

import (
	"errors"
	"strings"
	"testing"

	cube "cubesandbox"
)

func isRefused(t *testing.T, err error) {
	t.Helper()
	var full *cube.CapacityError
	if !errors.As(err, &full) || full.Needed <= full.Free || full.Free <= 0 {
		t.Errorf("got %v, want no capacity, with needed above free", err)
	}
}

func TestAPauseWhoseSaveFailsChangesNothing(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	before := l.Check(t, id)
	c := connect(t, id)
	undo := l.FillDisk(t)
	_, err := l.Engine.Pause(t.Context(), id, cube.NewSnapshotID(), cube.Pausing{})
	c.works()
	undo()
	if !errors.Is(err, cube.ErrNoSpace) {
		t.Errorf("got %v, want no space", err)
	}
	answersAsBefore(t, id, before, c)
}

func TestARollbackToABadImageChangesNothing(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, cube.ImageID) func(){
		"pages truncated":              func(t *testing.T, id cube.ImageID) func() { l.Truncate(t, id); return func() {} },
		"pages shortened while read":   func(t *testing.T, id cube.ImageID) func() { return l.Shorten(t, id) },
		"pages that give an I/O error": func(t *testing.T, id cube.ImageID) func() { return l.BreakDisk(t, id) },
		"pages altered":                func(t *testing.T, id cube.ImageID) func() { l.Alter(t, id); return func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			l.Guard(t)
			id := witness(t)
			img := save(t, id)
			before := l.Check(t, id)
			c := connect(t, id)
			undo := spoil(t, img)
			_, err := l.Engine.Rollback(t.Context(), id, img)
			answersAsBefore(t, id, before, c)
			undo()
			want := cube.ErrCorrupt
			if strings.Contains(name, "I/O") {
				want = cube.ErrUnavailable // it may be whole: nobody has read it
			}
			if !errors.Is(err, want) || !strings.Contains(err.Error(), string(img)) {
				t.Errorf("got %v, want %v, and the image's id", err, want)
			}
		})
	}
}
