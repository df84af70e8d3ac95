package image

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	cube "cubesandbox"
)

// holed makes a file of some size with bytes at some places.
func holed(t *testing.T, size int64, at ...int64) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	for _, at := range at {
		if _, err := f.WriteAt([]byte("x"), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAHoleHasTheSumOfItsZeros(t *testing.T) {
	for _, c := range []struct {
		size int64
		at   []int64
	}{
		{0, nil},
		{5, nil},
		{5, []int64{4}},
		{region, nil},
		{4 * region, []int64{2*region - 1, 2 * region}},
		{4*region + 5, []int64{0, 3 * region}},
		{4*region + 5, []int64{4*region + 4}},
	} {
		f := holed(t, c.size, c.at...)
		if _, err := f.Seek(1, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		got, err := sum(background, f, 0)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := f.Seek(0, io.SeekCurrent); err != nil || at != 1 {
			t.Errorf("the file is read from %d next, %v; want 1", at, err)
		}
		var want []uint32
		b := read(t, f.Name())
		for chunk := range slices.Chunk(b, region) {
			want = append(want, crc32.Checksum(chunk, castagnoli))
		}
		if !slices.Equal(got.CRC, want) {
			t.Errorf("%d bytes with data at %v: got %x, want %x", c.size, c.at, got.CRC, want)
		}
	}
}

func TestHolesAreNotRead(t *testing.T) {
	got, err := dataRegions(background, holed(t, 1<<40, 5, 1<<39), 1<<40)
	if want := []int64{0, 1 << 19}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestPublishingEndsWithItsContext(t *testing.T) {
	for name, durable := range map[string]bool{"published": false, "durable": true} {
		s := open(t)
		w := begin(t, s, cube.NewSnapshotID())
		fill(t, w, 8<<20)
		ctx, cancel := context.WithCancel(background)
		cancel()
		if _, err := w.Publish(ctx, cube.Image{}, durable); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", name, err)
		}
		wantGone(t, s, w.id)
		wantNothingStaged(t, s)
	}
}
