package template

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestPackProgramIsReproducibleAndHoldsOneProgram(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "p")
	body := bytes.Repeat([]byte("cube"), 5000)
	var digests []string
	for _, mode := range []os.FileMode{0o755, 0o600} {
		write(t, program, string(body), mode)
		image := filepath.Join(dir, "image")
		if err := PackProgram(context.Background(), program, "cube-guest", image); err != nil {
			t.Fatal(err)
		}
		digest, err := digestFile(image)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest)
		out := filepath.Join(dir, "out", mode.String())
		extract(t, image, out)
		st, err := os.Stat(filepath.Join(out, "cube-guest"))
		if err != nil || st.Mode() != 0o755 || st.Size() != int64(len(body)) {
			t.Errorf("inside: %v, %v, want %d bytes with mode 0755", st, err, len(body))
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("the same program gave %s and %s", digests[0], digests[1])
	}
	left, err := filepath.Glob(filepath.Join(dir, ".pack-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestPackedTreeKeepsTimesAndIsReproducible(t *testing.T) {
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	stamp, old := time.Unix(1_700_000_000, 0), time.Unix(1_600_000_000, 0)
	write(t, filepath.Join(tree, "a/small"), "its content", 0o644)
	for _, f := range []string{"a/small", "a", "."} {
		if err := os.Chtimes(filepath.Join(tree, f), old, old); err != nil {
			t.Fatal(err)
		}
	}
	var images [2][]byte
	for i := range images {
		image := filepath.Join(dir, "image")
		if err := packTree(context.Background(), tree, image, stamp); err != nil {
			t.Fatal(err)
		}
		var err error
		if images[i], err = os.ReadFile(image); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("the same tree gave two images")
	}
	// The superblock is at 1024: magic, and at 24 the build time.
	super := images[0][1024:]
	if magic := binary.LittleEndian.Uint32(super); magic != 0xE0F5E1E2 {
		t.Errorf("magic: got %#x", magic)
	}
	if got := binary.LittleEndian.Uint64(super[24:]); got != uint64(stamp.Unix()) {
		t.Errorf("build time: got %d, want %d", got, stamp.Unix())
	}
	out := filepath.Join(dir, "out")
	extract(t, filepath.Join(dir, "image"), out)
	st, err := os.Stat(filepath.Join(out, "a/small"))
	if err != nil || !st.ModTime().Equal(old) {
		t.Errorf("time of a file: got %v, %v, want %v", st, err, old)
	}
	// gVisor maps files from whole blocks: the content must not sit in its inode.
	if at := bytes.Index(images[0], []byte("its content")); at < 0 || at%4096 != 0 {
		t.Errorf("the content of a small file is at %d, want the start of a block", at)
	}
}

// extract unpacks an image with the tool that made it.
func extract(t *testing.T, image, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := contained(context.Background(), nil, nil, "fsck.erofs", "--extract="+to, "--overwrite", image); err != nil {
		t.Fatal(err)
	}
}
