package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/local"
)

// TestABootedSentryGoesWithTheLastImageOfItsFileSystem: else it would keep that, and
// itself, for ever.
func TestABootedSentryGoesWithTheLastImageOfItsFileSystem(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	image := save(t, id)
	rootfs := anotherRootfs(t, image)
	l.Forge(t, image, `("rootfs": *")[^"]*"`, "${1}"+rootfs+`"`)
	// It is not what was saved, but what is booted for it is wanted from then on.
	if _, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: image}); !errors.Is(err, cube.ErrCorrupt) {
		t.Fatalf("create with another root file system: got %v", err)
	}
	noError(t, l.Engine.SetPools(t.Context(), cube.Pools{Booted: 1}), "set pools")
	defer func() { noError(t, l.Engine.SetPools(context.Background(), cube.Pools{}), "empty the pools") }()
	noError(t, l.Engine.PoolsReady(t.Context()), "pools")
	if n := booted(t, rootfs); n != 1 {
		t.Fatalf("%d sentries are booted for it, want 1", n)
	}
	_, err := l.Engine.Collect(t.Context(), false)
	noError(t, err, "collect")
	if n := booted(t, rootfs); n != 1 {
		t.Errorf("%d sentries are booted while there is an image, want 1", n)
	}
	noError(t, l.Images.Delete(image), "delete the image")
	_, err = l.Engine.Collect(t.Context(), false)
	noError(t, err, "collect")
	noError(t, lab.Until(5*time.Second, "none is booted for it", func() error {
		if n := booted(t, rootfs); n != 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	}), "wait")
	noError(t, l.Engine.PoolsReady(t.Context()), "pools")
}

// anotherRootfs puts that of an image, and one byte more, into the store. It is
// taken away when the test ends.
func anotherRootfs(t *testing.T, image cube.ImageID) string {
	t.Helper()
	img, err := l.Images.Image(image)
	noError(t, err, "image")
	dir := filepath.Join(l.Options().StateDir, "rootfs")
	path := filepath.Join(l.Options().StateDir, "another.erofs")
	defer os.Remove(path)
	out, err := exec.CommandContext(t.Context(), "cp", filepath.Join(dir, img.Rootfs+".erofs"), path).CombinedOutput()
	noError(t, err, "copy: "+string(out))
	noError(t, os.Chmod(path, 0o600), "chmod")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	noError(t, err, "open")
	_, err = f.Write(make([]byte, 4096))
	noError(t, errors.Join(err, f.Close()), "write")
	digest, err := l.Images.PutRootfs(t.Context(), path)
	noError(t, err, "put")
	t.Cleanup(func() {
		for _, suffix := range []string{".erofs", ".json"} { // the store keeps it for an hour
			os.Remove(filepath.Join(dir, digest+suffix))
		}
	})
	return digest
}

// booted counts the sentries that wait for an image with a root file system.
func booted(t *testing.T, rootfs string) int {
	t.Helper()
	h, err := local.LookAt(t.Context(), l.Options().RunDir)
	noError(t, err, "look at the keeper")
	n := 0
	for _, life := range h.Lives {
		if life.Labels.Role == keeperapi.RolePool && life.Rootfs == rootfs && life.State == keeperapi.StateBooted {
			n++
		}
	}
	return n
}
