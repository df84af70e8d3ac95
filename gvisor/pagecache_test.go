package gvisor

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
)

func TestPagesThatAreNotInThePageCacheAreReadIntoIt(t *testing.T) {
	const size = 8 << 20
	// A file system in memory keeps everything in the page cache.
	f, err := os.Create(filepath.Join(t.TempDir(), "pages"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(bytes.Repeat([]byte{1}, size)); err != nil {
		t.Fatal(err)
	}
	cached := func() int64 {
		var in unix.Cachestat_t
		if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{Len: size}, &in, 0); err != nil {
			t.Fatal(err)
		}
		return int64(in.Cache) * int64(os.Getpagesize())
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if n := cached(); n > size/2 {
		t.Fatalf("%d bytes of the file stay in the page cache: this test needs TMPDIR on a disk", n)
	}
	e := &Engine{ctx: context.Background()}
	if err := e.fill(f); err != nil {
		t.Fatal(err)
	}
	deadline, tick := time.After(10*time.Second), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for cached() < size {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("only %d bytes of %d are in the page cache", cached(), size)
		}
	}
}

func TestThePageCacheIsNotLookedAtForEachCopy(t *testing.T) {
	c := pageCache{looked: map[cube.BaseID]time.Time{}}
	if !c.due("a") || c.due("a") || !c.due("b") {
		t.Error("each image once")
	}
	c.looked["a"] = time.Now().Add(-lookAgain)
	if c.due("b") || !c.due("a") {
		t.Error("again after a while")
	}
	c.looked["a"] = time.Now().Add(-lookAgain)
	c.due("c")
	if _, there := c.looked["a"]; there {
		t.Error("what was long ago is kept")
	}
}
