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
	copied := copyLayer(t.Context(), to, r, most)
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
	r, w, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("something"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := copyLayer(t.Context(), full, r, 100); !errors.Is(err, cube.ErrNoSpace) {
		t.Errorf("got %v", err)
	}
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
	if err := copyLayer(ctx, nil, r, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	r.Close()
}
