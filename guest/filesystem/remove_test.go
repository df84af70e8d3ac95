package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"cubesandbox/guest/envdpb/filesystem"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// TestAFIFOInAPathHoldsNothingUp: an open of one waits for its other end.
func TestAFIFOInAPathHoldsNothingUp(t *testing.T) {
	c, home := serve(t)
	if err := errors.Join(os.Mkdir(home+"/d", 0o755), unix.Mkfifo(home+"/d/fifo", 0o644), os.Symlink("d/fifo", home+"/link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"d/fifo/x", "d/fifo/x/y", "link/x"} {
		_, remove := c.Remove(patience(t), connect.NewRequest(&filesystem.RemoveRequest{Path: path}))
		_, list := c.ListDir(patience(t), connect.NewRequest(&filesystem.ListDirRequest{Path: path}))
		_, stat := c.Stat(patience(t), connect.NewRequest(&filesystem.StatRequest{Path: path}))
		for what, err := range map[string]error{"remove": remove, "list": list, "stat": stat} {
			if connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("%s %s: %v", what, path, err)
			}
		}
	}
	if _, err := os.Lstat(home + "/d/fifo"); err != nil {
		t.Error(err)
	}
	// What a directory has become since it was looked at.
	for _, path := range []string{"/d/fifo", "/link"} {
		if _, err := readDir(home+path, 1, unix.O_NOFOLLOW); err == nil || !passes(err) {
			t.Errorf("read %s: %v", path, err)
		}
	}
	if _, err := readDir(home+"/link", 1, 0); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("read a link to it: %v", err)
	}
}

func TestATreeOfAnythingIsRemovedAndNoLinkFollowed(t *testing.T) {
	c, home := serve(t)
	write(t, home+"/other/f", "")
	for i := range 2*removeBatch + 7 {
		write(t, fmt.Sprintf("%s/d/%d/f", home, i%100), "")
		write(t, fmt.Sprintf("%s/d/many/%d", home, i), "")
	}
	if err := errors.Join(unix.Mkfifo(home+"/d/fifo", 0o644), os.Symlink("../other", home+"/d/link"), os.Symlink("d", home+"/to-d")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"to-d/many/3", "to-d", "d", "d", "none/at/all"} {
		if _, err := c.Remove(patience(t), connect.NewRequest(&filesystem.RemoveRequest{Path: path})); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if path == "to-d" {
			if left, err := os.ReadDir(home + "/d/many"); err != nil || len(left) != 2*removeBatch+6 {
				t.Errorf("removing a link leaves %d, %v", len(left), err)
			}
		}
	}
	left, err := os.ReadDir(home)
	if err != nil || len(left) != 1 || left[0].Name() != "other" {
		t.Errorf("left are %v, %v", left, err)
	}
	if _, err := os.Stat(home + "/other/f"); err != nil {
		t.Error(err)
	}
}

func TestARemovalEndsWithItsClient(t *testing.T) {
	home := t.TempDir()
	write(t, home+"/d/f", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := removeAll(ctx, home+"/d"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(home + "/d/f"); err != nil {
		t.Error(err)
	}
}

func TestDirectoriesTooDeepInEachOtherAreRefused(t *testing.T) {
	home := t.TempDir()
	tree := func(levels int) {
		// Half by half, for a path has its bound too.
		half := home + strings.Repeat("/d", levels/2)
		err := errors.Join(os.MkdirAll(half, 0o755), os.MkdirAll(home+"/e"+strings.Repeat("/d", levels-levels/2-1), 0o755))
		if err = errors.Join(err, os.Rename(home+"/e", half+"/d")); err != nil {
			t.Fatal(err)
		}
	}
	tree(maxRemoveDepth)
	if err := removeAll(t.Context(), home+"/d"); err != nil {
		t.Error(err)
	}
	tree(maxRemoveDepth + 2)
	if err := removeAll(t.Context(), home+"/d"); !errors.Is(err, errTooDeep) || connect.CodeOf(rpcError(err)) != connect.CodeResourceExhausted {
		t.Errorf("got %v", err)
	}
	if err := removeAll(t.Context(), home+"/d/d/d"); err != nil {
		t.Errorf("its inner part: %v", err)
	}
}

func TestWhatCannotBeRemovedIsNamed(t *testing.T) {
	err := removeAll(t.Context(), "/proc/self/fdinfo")
	if err == nil || !strings.Contains(err.Error(), "/proc/self/fdinfo") || !errors.Is(err, os.ErrPermission) {
		t.Errorf("got %v", err)
	}
}
