package gvisor

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
)

// copied sends bytes through a pipe, as a sentry does, and copies them to a file.
func copied(t *testing.T, content []byte, most int64) (*os.File, error) {
	t.Helper()
	r, w, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := w.Write(content)
		w.Close()
		sent <- err
	}()
	to, err := os.Create(filepath.Join(t.TempDir(), "tar"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	copied := copyLayer(t.Context(), to, r, layerBounds{data: most, length: 1 << 40})
	r.Close()
	if err := <-sent; copied != nil && len(content) > pipeSize && !errors.Is(err, unix.EPIPE) {
		t.Errorf("whoever writes more than is wanted got %v, want EPIPE", err)
	}
	return to, copied
}

func TestAStreamIsCopiedWithHoles(t *testing.T) {
	random := make([]byte, 300<<10)
	rand.NewChaCha8([32]byte{}).Read(random)
	content := bytes.Join([][]byte{random, make([]byte, 64<<20), random[:1000], make([]byte, 5000)}, nil)
	to, err := copied(t, content, int64(len(random))+8<<10)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(to.Name())
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes came, %v; want the %d that were sent", len(got), err, len(content))
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(to.Fd()), &st); err != nil || st.Blocks*512 > 1<<20 {
		t.Errorf("they take %d KiB on disk, %v", st.Blocks/2, err)
	}
	if to, err = copied(t, nil, 0); err != nil {
		t.Error(err)
	}
	if fi, err := to.Stat(); err != nil || fi.Size() != 0 {
		t.Errorf("of nothing there are %d bytes, %v", fi.Size(), err)
	}
}

func TestAStreamThatIsTooLongIsCutOff(t *testing.T) {
	content := bytes.Repeat([]byte("x"), 8<<20)
	if _, err := copied(t, content, 1<<20); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("got %v", err)
	}
	if _, err := copied(t, content[:9000], 8999); err == nil {
		t.Error("one byte too many is taken")
	}
	if _, err := copied(t, content, int64(len(content))); err != nil {
		t.Errorf("as long as is allowed: %v", err)
	}
}

func TestAFullDiskIsNamedAsSuch(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	r := something(t)
	defer r.Close()
	if err := copyLayer(t.Context(), full, r, layerBounds{data: 100, length: 100}); !errors.Is(err, cube.ErrNoSpace) {
		t.Errorf("got %v", err)
	}
}

// something is a stream of a few bytes.
func something(t *testing.T) *os.File {
	t.Helper()
	r, w, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.WriteString("something")
	if err = errors.Join(err, w.Close()); err != nil {
		r.Close()
		t.Fatal(err)
	}
	return r
}

func TestAStreamThatComesToNothingEndsWithItsContext(t *testing.T) {
	r, w, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancelRead(ctx, r)()
	cancel()
	if err := copyLayer(ctx, nil, r, layerBounds{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	r.Close()
}

// endless sends holes until nobody reads them any more.
func endless(t *testing.T) (r *os.File) {
	t.Helper()
	r, w, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		defer w.Close()
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				ended <- err
				return
			}
		}
	}()
	t.Cleanup(func() {
		r.Close()
		if err := <-ended; !errors.Is(err, unix.EPIPE) {
			t.Errorf("whoever sent it got %v, want EPIPE", err)
		}
	})
	return r
}

func TestHolesWithoutEndAreCutOff(t *testing.T) {
	to, err := os.Create(filepath.Join(t.TempDir(), "tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := copyLayer(t.Context(), to, endless(t), layerBounds{data: 1 << 20, length: 256 << 20}); err == nil || !strings.Contains(err.Error(), "holes") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errSlow)
	defer cancel()
	r := endless(t)
	defer cancelRead(ctx, r)()
	if err := copyLayer(ctx, to, r, layerBounds{data: 1 << 20, length: 1 << 60}); !errors.Is(err, errSlow) {
		t.Errorf("got %v, want that it was too slow", err)
	}
}

func TestWhatIsOptionalLeavesSomeOfTheDisk(t *testing.T) {
	to, err := os.Create(filepath.Join(t.TempDir(), "tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(to.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	spare, err := spareOf(to)
	if err != nil || spare < 64<<20 || spare < int64(st.Blocks)*st.Bsize/100 {
		t.Errorf("%d bytes stay, %v", spare, err)
	}
	r := something(t)
	defer r.Close()
	all := int64(st.Blocks) * st.Bsize // more than is free, once something is written
	err = copyLayer(t.Context(), to, r, layerBounds{data: 100, length: 100, spare: all})
	if fi, serr := to.Stat(); !errors.Is(err, cube.ErrNoSpace) || serr != nil || fi.Size() != 0 {
		t.Errorf("got %v, after %d bytes", err, fi.Size())
	}
}

func TestNoHonestLayerIsRefused(t *testing.T) {
	l := cube.Limits{MemoryMiB: 512, CPUs: 2, DiskMiB: 10 << 10, Pids: 1024}
	const entries = 1_000_000 // empty ones, which take nothing on disk
	if b := boundsOf(0, l); b.data < entries*(512+1024) || b.length < 10<<30+b.data {
		t.Errorf("got %+v, want room for %d empty entries", b, entries)
	}
	const disk = 5 << 30 // in files of one byte each: a block of a file, a block of the tar
	if b := boundsOf(disk, l); b.data < 2*disk || b.time < 4*time.Minute {
		t.Errorf("got %+v, want twice %d bytes", b, int64(disk))
	}
	huge := cube.Limits{MemoryMiB: 1 << 20, DiskMiB: 1 << 24}
	if b := boundsOf(0, huge); b.data > 9<<30 {
		t.Errorf("got %+v, want a bound whatever the limits", b)
	}
}
