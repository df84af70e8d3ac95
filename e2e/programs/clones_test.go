package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
	"cubesandbox/internal/footprint"
)

const (
	heldMiB = 300
	// clonesMemory bounds what the clones take beyond their source, in bytes: 1 GB.
	clonesMemory = 1_000_000_000
	// clonesOfPatched and clonesOfStock are how many there are; stock gVisor copies all
	// memory into each of them.
	clonesOfPatched, clonesOfStock = 30, 3
)

// TestThirtyClonesOf300MiBTakeLittleMemory: a sandbox that holds 300 MiB, its snapshot, and
// clones, all of which answer and then read all of it. They take less than 1 GB together,
// page cache included when they have answered; when all is read, the image that they read
// it from is in the page cache once, which the kernel can take back, and the rest is less.
// That is what the patched engine is for: on stock gVisor the same is measured on fewer
// clones, and the figures must show all the copies of memory that stock makes, so that
// what is measured is what is there.
func TestThirtyClonesOf300MiBTakeLittleMemory(t *testing.T) {
	s.Guard(t)
	ctx := t.Context()
	version, err := s.EngineVersion(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stock := strings.Contains(version, "-stock-")
	n := clonesOfPatched
	if stock {
		n = clonesOfStock
	}
	source, was, err := program{name: "memory", command: fmt.Sprint("python3 held.py ", heldMiB)}.start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// A running source goes over to the image that it was saved to.
	if _, err := s.API.Snapshot(ctx, source.ID, ""); err != nil {
		t.Fatal(err)
	}
	m := &meter{t: t, ids: []cube.SandboxID{source.ID}}
	before := m.read("the source")
	began := time.Now()
	made, err := s.API.Clone(ctx, source.ID, client.Cloning{Count: n, Timeout: cube.NeverTimeout})
	if err != nil {
		t.Fatal(err)
	}
	m.clones(ctx, made, "rounds", was)
	t.Logf("%d clones, all answered after %v", n, time.Since(began))
	first := m.read("all answered")
	m.clones(ctx, made, "check", was)
	last := m.read("all memory read")
	answered, compared := first.Total()-before.Total(), last.Kept()-before.Kept()
	t.Logf("beyond the source: %d MB answered; all read, %d MB without page cache, %d with it; of each clone %d and %d MB",
		answered/1e6, compared/1e6, (last.Total()-before.Total())/1e6, answered/1e6/int64(n), compared/1e6/int64(n))
	alone(t, made, was)
	if stock {
		t.Logf("engine %s copies memory: the bound of %d MB for %d clones is that of the patched engine", version, clonesMemory/1_000_000, clonesOfPatched)
		if least := int64(n) * heldMiB << 20; min(answered, compared) < least {
			t.Errorf("%d clones take %d bytes beyond their source, and %d: each holds a copy of %d MiB, so that is not all", n, answered, compared, heldMiB)
		}
		return
	}
	if answered >= clonesMemory || compared >= clonesMemory {
		t.Errorf("%d clones take %d bytes beyond their source, and %d without page cache when all is read: want less than %d", n, answered, compared, clonesMemory)
	}
}

// alone: a byte that is changed in a clone is changed in no other.
func alone(t *testing.T, made []client.Sandbox, was lab.Working) {
	t.Helper()
	if _, err := s.Ask(t.Context(), made[0].ID, "spoil"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Ask(t.Context(), made[0].ID, "check"); !errors.Is(err, lab.ErrWrong) {
		t.Errorf("a byte was changed, and the program says %v, want %v", err, lab.ErrWrong)
	}
	last := made[len(made)-1].ID
	now, err := s.Ask(t.Context(), last, "check")
	if err == nil {
		err = now.Follows(was)
	}
	if err != nil {
		t.Errorf("after a byte was changed in %s: %v", made[0].ID, err)
	}
}

// meter measures the memory of sandboxes.
type meter struct {
	t   *testing.T
	ids []cube.SandboxID
}

// read measures, and notes beside it what the machine as a whole takes, where others may be
// at work too.
func (m *meter) read(when string) footprint.Footprint {
	m.t.Helper()
	f, err := s.Memory(m.t.Context(), m.ids...)
	if err != nil {
		m.t.Fatal(err)
	}
	host, err := hostMemory()
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Logf("%s: %d MiB (anon %d, file %d, shmem %d, not mapped %d, page tables %d; %d address spaces); the machine: %d MiB", when,
		f.Total()>>20, f.Anon>>20, f.File>>20, f.Shmem>>20, f.Unmapped>>20, f.Tables>>20, f.Spaces, host>>20)
	return f
}

// clones asks all of them, two at a time; they are measured from now on.
func (m *meter) clones(ctx context.Context, made []client.Sandbox, path string, was lab.Working) {
	m.t.Helper()
	var mu sync.Mutex // guards next
	next := made
	lab.ByTwos(len(made), func() bool {
		mu.Lock()
		b := next[0]
		next = next[1:]
		mu.Unlock()
		now, err := s.Ask(ctx, b.ID, path)
		if err == nil {
			err = now.Follows(was)
		}
		if err != nil {
			m.t.Errorf("clone %s: %v", b.ID, err)
		}
		return err == nil
	})
	if len(m.ids) == 1 {
		for _, b := range made {
			m.ids = append(m.ids, b.ID)
		}
	}
}

// hostMemory is what the machine takes beside page cache that can be dropped, in bytes.
func hostMemory() (total int64, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "AnonPages", "Shmem", "PageTables", "KernelStack", "Slab":
			var kb int64
			if _, err := fmt.Sscan(value, &kb); err != nil {
				return 0, fmt.Errorf("/proc/meminfo: %s: %w", name, err)
			}
			total += kb << 10
		}
	}
	return total, nil
}
