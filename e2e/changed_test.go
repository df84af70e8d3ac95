package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
)

// large is how much memory, and how much in files, a sandbox of these tests has.
const large = 64 << 20

// loaded makes a sandbox with much in memory and in files.
func loaded(t *testing.T) cube.SandboxID {
	t.Helper()
	id := witness(t)
	sh(t, id, fmt.Sprintf("head -c %d /dev/urandom > /root/large && sync", large))
	sh(t, id, fmt.Sprintf(`python3 -c '
import os, time
held = os.urandom(%d)
open("/root/held", "w").close()
time.sleep(1e6)' >/dev/null 2>&1 &
while [ ! -e /root/held ]; do sleep 0.05; done`, large))
	return id
}

// saved is save, with what was written.
func saved(t *testing.T, id cube.SandboxID) cube.Image {
	t.Helper()
	im, err := l.Engine.Save(t.Context(), id, cube.NewSnapshotID())
	noError(t, err, "save")
	return im
}

// costsLittle wants an image to have saved little, and to have its memory in those that came
// before.
func costsLittle(t *testing.T, what string, im cube.Image, bases ...cube.BaseID) {
	t.Helper()
	const little = large / 4
	if im.PagesBytes > little || im.SharedBytes < 2*large-little {
		t.Errorf("%s wrote %d bytes and shares %d; want at most %d of some %d", what, im.PagesBytes, im.SharedBytes, little, 2*large)
	}
	for _, b := range bases {
		if !slices.Contains(im.Bases, b) {
			t.Errorf("%s has no memory in %s: %v", what, b, im.Bases)
		}
	}
}

// TestASnapshotSavesWhatHasChanged: of a sandbox that runs on, of a copy, after a clone,
// after a rollback, memory and files; and all of it is there in what is made of it.
func TestASnapshotSavesWhatHasChanged(t *testing.T) {
	l.Guard(t)
	ctx := t.Context()
	id := loaded(t)
	first := saved(t, id)
	if first.PagesBytes < 2*large {
		t.Errorf("the first wrote %d bytes: want all that is there, %d at least", first.PagesBytes, 2*large)
	}
	sh(t, id, "dd if=/dev/urandom of=/root/large bs=64k count=16 seek=100 conv=notrunc 2>/dev/null")
	sum := sh(t, id, "sha256sum /root/large")
	second := saved(t, id)
	costsLittle(t, "the second", second, first.Base)
	copies := clone(t, id, 2)
	costsLittle(t, "one after a clone", saved(t, id), first.Base)
	third := saved(t, copies[0])
	costsLittle(t, "one of a clone", third, first.Base)
	// What nobody can use by name any more is there as long as others have memory in it.
	noError(t, l.Images.Delete(first.ID), "delete the first")
	s, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: third.ID})
	noError(t, err, "create from the snapshot of a clone")
	_, err = l.Engine.Rollback(ctx, id, second.ID)
	noError(t, err, "roll back")
	costsLittle(t, "one after a rollback", saved(t, id), first.Base)
	for _, other := range append(copies, s.ID, id) {
		if got := sh(t, other, "sha256sum /root/large"); got != sum {
			t.Errorf("the file in %s is %s, want %s", other, got, sum)
		}
		l.Check(t, other)
	}
}

// TestWhatASandboxSharesIsToldFromWhatIsItsOwn: memory and files, before it has been saved,
// after, in a copy, and when the copy has written.
func TestWhatASandboxSharesIsToldFromWhatIsItsOwn(t *testing.T) {
	l.Guard(t)
	ctx := t.Context()
	usage := func(id cube.SandboxID) (own, shared int64) {
		t.Helper()
		u, err := l.Engine.Usage(ctx, id)
		noError(t, err, "usage")
		if u.SharedMemory > u.GuestMemory {
			t.Errorf("it shares %d bytes of %d", u.SharedMemory, u.GuestMemory)
		}
		return u.GuestMemory - u.SharedMemory + u.GuestFiles, u.SharedMemory + u.SharedFiles
	}
	const part = large / 8
	id := loaded(t)
	if own, shared := usage(id); own < 2*large || shared > large/2 {
		t.Errorf("before it was saved it has %d of its own and shares %d, want nearly all of its own", own, shared)
	}
	im := saved(t, id)
	s, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: im.ID})
	noError(t, err, "create")
	for what, id := range map[string]cube.SandboxID{"the source": id, "the copy": s.ID} {
		if own, shared := usage(id); own > 2*part || shared < 2*large-2*part {
			t.Errorf("%s has %d of its own and shares %d, want nearly all shared", what, own, shared)
		}
	}
	_, before := usage(s.ID)
	sh(t, s.ID, fmt.Sprintf("dd if=/dev/urandom of=/root/large bs=1M count=%d conv=notrunc 2>/dev/null", large>>21))
	if own, shared := usage(s.ID); own < large/2 || shared > before-large/2+part {
		t.Errorf("when half of its file was written anew it has %d of its own and shares %d, %d before", own, shared, before)
	}
}

// worker makes a sandbox with a program that holds so many random bytes, as held, and does
// its work each time that it gets SIGUSR1.
func worker(t *testing.T, size int, work string) cube.SandboxID {
	t.Helper()
	id := witness(t)
	sh(t, id, fmt.Sprintf(`python3 -c '
import hashlib, os, signal, time
held = bytearray(os.urandom(%d))
def work(*a):
    %s
    tell()
def tell(*a):
    open("/root/now.tmp", "w").write(hashlib.sha256(held).hexdigest())
    os.rename("/root/now.tmp", "/root/now")
signal.signal(signal.SIGUSR1, work)
signal.signal(signal.SIGUSR2, tell)
open("/root/pid", "w").write(str(os.getpid()))
while True: time.sleep(1e6)' >/dev/null 2>&1 &
while [ ! -s /root/pid ]; do sleep 0.05; done`, size, work))
	return id
}

// told is the digest of what a worker holds, after USR1 when it has worked, after USR2 as it is.
func told(t *testing.T, id cube.SandboxID, signal string) string {
	t.Helper()
	return sh(t, id, "rm -f /root/now; kill -"+signal+" $(cat /root/pid); while [ ! -e /root/now ]; do sleep 0.05; done; cat /root/now")
}

// TestCopiesOwnFromTheBeginningWhatTheLastOneHasWrittenToEarly: what the first copy of an
// image writes to, those have pages of their own for that are made of it later; their memory
// is what was saved.
func TestCopiesOwnFromTheBeginningWhatTheLastOneHasWrittenToEarly(t *testing.T) {
	l.Guard(t)
	ctx := t.Context()
	const writes = 4 << 20
	id := worker(t, writes, "for i in range(0, len(held), 4096): held[i] ^= 255")
	want := told(t, id, "USR2")
	im := saved(t, id)
	var early []int64
	for n := range 3 {
		s, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: im.ID})
		noError(t, err, "create")
		if n == 0 {
			if told(t, s.ID, "USR1") == want {
				t.Error("it has not worked")
			}
			err := lab.Until(20*time.Second, "the engine knows what it wrote to", func() error {
				other, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: im.ID})
				noError(t, err, "create")
				defer func() { noError(t, l.Engine.Kill(ctx, other.ID), "kill") }()
				if bytes, err := l.EarlyWrites(ctx, other.ID); err != nil || bytes < writes {
					return fmt.Errorf("the next owns %d bytes (%v)", bytes, err)
				}
				return nil
			})
			noError(t, err, "wait")
		} else if got := told(t, s.ID, "USR2"); got != want {
			t.Errorf("the memory of a later copy is %s, was saved as %s", got, want)
		}
		bytes, err := l.EarlyWrites(ctx, s.ID)
		noError(t, err, "early writes")
		early = append(early, bytes)
		l.Check(t, s.ID)
	}
	if early[1] < writes || early[1] > 16<<20 {
		t.Errorf("copies own %v bytes, want %d at least and 16 MiB at most", early, writes)
	}
}

// TestPagesOfAnImageAreChargedToNobody: also where none of them is in the page cache when a
// sandbox begins to need them.
func TestPagesOfAnImageAreChargedToNobody(t *testing.T) {
	l.Guard(t)
	ctx := t.Context()
	im := saved(t, loaded(t))
	evict(t, filepath.Join(l.Images.Dir(im.ID), "pages"))
	for _, where := range []string{"on the disk alone", "in the page cache"} {
		s, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: im.ID})
		noError(t, err, "create")
		before, err := l.Engine.Usage(ctx, s.ID)
		noError(t, err, "usage")
		sh(t, s.ID, "cat /root/large | wc -c")
		u, err := l.Engine.Usage(ctx, s.ID)
		noError(t, err, "usage")
		if u.SharedFiles < large*3/4 {
			t.Errorf("%s: of %d bytes in a file it shares %d", where, large, u.SharedFiles)
		}
		if u.HostMemory > before.HostMemory+large/2 || before.HostMemory > 2*large {
			t.Errorf("%s: it was charged %d bytes, and %d when it had read %d of an image", where, before.HostMemory, u.HostMemory, large)
		}
	}
}

// evict takes a file out of the page cache.
func evict(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	noError(t, err, "open")
	defer f.Close()
	noError(t, f.Sync(), "sync")
	noError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), "evict")
}

// TestAnIdleSandboxGivesBackWhatItHasNotChanged: pages that it had to take from its image
// with those that it wrote to, and those to which it wrote what was there; and what it has
// changed is as it was.
func TestAnIdleSandboxGivesBackWhatItHasNotChanged(t *testing.T) {
	l.Guard(t)
	ctx := t.Context()
	const size = 16 << 20
	id := worker(t, size, `for i in range(0, len(held), 65536): held[i] ^= 255
    with open("/root/large", "r+b") as f:
        for i in range(0, len(held), 65536):
            f.seek(i); f.write(b"x")`)
	sh(t, id, fmt.Sprintf("head -c %d /dev/urandom >/root/large", size))
	im := saved(t, id)
	s, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: im.ID})
	noError(t, err, "create")
	state := func(signal string) string {
		t.Helper()
		return told(t, s.ID, signal) + sh(t, s.ID, "sha256sum </root/large")
	}
	want := state("USR1")
	before, err := l.Engine.Usage(ctx, s.ID)
	noError(t, err, "usage")
	gave, err := l.GiveBack(ctx, s.ID)
	noError(t, err, "give back")
	shared := func(u cube.Usage) int64 { return u.SharedMemory + u.SharedFiles }
	// Half of all pages were unshared for one in sixteen that was written to.
	if gave < size/4 {
		t.Errorf("it gives back %d bytes of some %d that it has not changed", gave, size*7/8)
	}
	err = lab.Until(10*time.Second, "the memory is given back", func() error {
		if u, err := l.Engine.Usage(ctx, s.ID); err != nil || shared(u) < shared(before)+gave*3/4 {
			return fmt.Errorf("it shares %d, and %d before (%v)", shared(u), shared(before), err)
		}
		return nil
	})
	noError(t, err, "wait")
	if got := state("USR2"); got != want {
		t.Errorf("its memory and files are %s, were %s", got, want)
	}
	if again, err := l.GiveBack(ctx, s.ID); err != nil || again > gave/2 {
		t.Errorf("at once again it gives back %d bytes (%v)", again, err)
	}
	if got := state("USR1"); got == want {
		t.Error("what it writes is lost")
	}
	// What it shares again is not saved again.
	second := saved(t, s.ID)
	if second.PagesBytes > size {
		t.Errorf("its next snapshot wrote %d bytes", second.PagesBytes)
	}
	l.Check(t, s.ID)
}

// TestABaseThatIsTruncatedEndsWhoHasMemoryInItAndNobodyElse: and they say why.
func TestABaseThatIsTruncatedEndsWhoHasMemoryInItAndNobodyElse(t *testing.T) {
	l.Guard(t)
	ctx := t.Context()
	other := witness(t)
	before := l.Check(t, other)
	source := loaded(t)
	im := saved(t, source)
	s, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: im.ID})
	noError(t, err, "create")
	if err := os.Truncate(filepath.Join(l.Images.Dir(im.ID), "pages"), 0); err != nil {
		t.Fatal(err)
	}
	for _, id := range []cube.SandboxID{s.ID, source} {
		err := lab.Until(20*time.Second, "it ends", func() error {
			l.Run(ctx, id, "/bin/cat", "/root/large") // it may end before it answers
			if got, err := l.Engine.Sandbox(ctx, id); err != nil || got.State != cube.StateDead {
				return fmt.Errorf("it is %s (%v)", got.State, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
			continue
		}
		got, err := l.Engine.Sandbox(ctx, id)
		if err != nil || got.Death.Reason != cube.DeathCrash || !strings.Contains(got.Death.Detail, string(im.Base)) || !strings.Contains(got.Death.Detail, "cannot be read") {
			t.Errorf("its death is %+v (%v), want that its image cannot be read", got.Death, err)
		}
		noError(t, l.Engine.Kill(ctx, id), "kill")
	}
	if now := l.Check(t, other); now.PID != before.PID {
		t.Errorf("the other one's witness is process %d, was %d", now.PID, before.PID)
	}
}
