package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// bareLife is a life that waits to be told what to run, and the keeper that has it. The
// engine would read an image before it gave it to one.
func bareLife(t *testing.T) (*fdrpc.Client, string) {
	t.Helper()
	img, err := l.Images.Image(l.Witness)
	noError(t, err, "the witness")
	k, err := fdrpc.Dial(t.Context(), filepath.Join(l.Options().RunDir, "keeper.sock"), keeperapi.Protocol, keeperapi.Version, nil)
	noError(t, err, "dial the keeper")
	t.Cleanup(func() { k.Close() })
	life := string(cube.NewSandboxID())
	files := []*os.File{rootfs(t, img.Rootfs), rootfs(t, img.Agent), scratch(t, "")}
	t.Cleanup(func() {
		_, err := k.Call(context.Background(), keeperapi.MethodKill, keeperapi.Kill{Life: life, Forget: true}, nil, nil)
		noError(t, err, "kill the life")
	})
	_, err = k.Call(t.Context(), keeperapi.MethodBoot, keeperapi.Boot{
		Life: life, Limits: img.Limits, Rootfs: img.Rootfs, Agent: img.Agent, Labels: keeperapi.Labels{Role: keeperapi.RolePending},
	}, files, nil)
	noError(t, err, "boot")
	return k, life
}

func rootfs(t *testing.T, digest string) *os.File {
	t.Helper()
	f, err := l.Images.OpenRootfs(digest)
	noError(t, err, "a file system of the witness")
	t.Cleanup(func() { f.Close() })
	return f
}

// scratch is a file with a text.
func scratch(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	noError(t, err, "a file")
	t.Cleanup(func() { f.Close() })
	_, err = f.WriteString(text)
	noError(t, err, "write")
	_, err = f.Seek(0, 0)
	noError(t, err, "seek")
	return f
}

// TestASentryThatRefusesAnImageSaysWhyAndLives: what it refuses at once, before it has
// begun to restore. Without gvisor/patches/restore-failed.md it ended instead, by an access
// through a nil pointer, and the reason was nowhere but in its log.
func TestASentryThatRefusesAnImageSaysWhyAndLives(t *testing.T) {
	for name, c := range map[string]struct{ kernel, says string }{
		"an empty kernel":         {"", "statefile cannot be empty"},
		"a kernel that is no one": {strings.Repeat("no kernel ", 1000), "creating statefile reader"},
	} {
		t.Run(name, func(t *testing.T) {
			l.Guard(t)
			k, life := bareLife(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			files := []*os.File{scratch(t, c.kernel), scratch(t, ""), scratch(t, "")}
			_, err := k.Call(ctx, keeperapi.MethodRestore, keeperapi.Ref{Life: life}, files, nil)
			if fdrpc.Code(err) != keeperapi.CodeImage || !strings.Contains(err.Error(), c.says) {
				t.Errorf("restore: got %v, want the image refused because %q", err, c.says)
			}
			var lives keeperapi.Lives
			_, err = k.Call(ctx, keeperapi.MethodList, keeperapi.List{}, nil, &lives)
			noError(t, err, "list")
			i := slices.IndexFunc(lives.Lives, func(v keeperapi.Life) bool { return v.Life == life })
			if i < 0 || lives.Lives[i].Death != nil {
				t.Errorf("after it: got the lives %+v, want %s alive among them", lives.Lives, life)
			}
		})
	}
}
