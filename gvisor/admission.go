package gvisor

import (
	"math"
	"os"
	"strconv"
	"strings"
	"sync"

	cube "cubesandbox"
)

const (
	// sentryCost is what a restored sentry takes beside the guest's pages, in bytes:
	// its heap, stubs, page tables (measured: 21 to 34 MB).
	sentryCost = 36 << 20
	// bootCost is what a cold boot takes until it is done, in bytes.
	bootCost = 192 << 20
	// reserveHost is what is left to the host, in bytes.
	reserveHost = 512 << 20
)

// cost is what a copy of so many saved bytes takes. Stock gVisor copies all of
// them into each.
func cost(pages int64) int64 { return pages + sentryCost }

// costOf is what a life may take that is made from an image: pages that it shares too, for
// it may write to all of them.
func costOf(im cube.Image) int64 { return cost(im.PagesBytes + im.SharedBytes) }

// admission lets work begin for which there is memory. It counts what has been
// promised and does not show in the machine's figures yet.
type admission struct {
	budget int64 // 0: what the machine has

	mu       sync.Mutex // guards promised
	promised int64
}

// promise is memory that was promised, and is not in the machine's figures yet.
type promise struct {
	a    *admission
	left int64 // guarded by a.mu
}

// kept takes back what has been taken of the memory: it is in the machine's figures now.
// Against a budget it counts until it is a sandbox's.
func (p *promise) kept(bytes int64) {
	if p.a.budget == 0 {
		p.giveBack(bytes)
	}
}

// end takes back all that is left.
func (p *promise) end() { p.giveBack(math.MaxInt64) }

func (p *promise) giveBack(bytes int64) {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	bytes = min(bytes, p.left)
	p.left -= bytes
	p.a.promised -= bytes
}

// reserve promises bytes, or says how many are free. The members of pools are
// given up before anybody is refused. The promise is to be ended when the memory
// has been taken or is not needed.
func (a *admission) reserve(e *Engine, bytes int64) (*promise, error) {
	p, err := a.try(e, bytes)
	if err == nil {
		return p, nil
	}
	// Members of pools are not ended in vain.
	lacking := bytes - a.free(e)
	if lacking <= e.pools.taken() && e.pools.giveUp(lacking) {
		return a.try(e, bytes)
	}
	return nil, err
}

func (a *admission) try(e *Engine, bytes int64) (*promise, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if free := a.available(e) - a.promised; bytes > free {
		return nil, &cube.CapacityError{What: "memory", Needed: bytes, Free: max(0, free)}
	}
	a.promised += bytes
	return &promise{a, bytes}, nil
}

// free is what could be promised, in bytes; below 0 where too much has been.
func (a *admission) free(e *Engine) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.available(e) - a.promised
}

func (a *admission) available(e *Engine) int64 {
	if a.budget > 0 {
		return a.budget - e.taken()
	}
	return memAvailable() - reserveHost
}

// taken is what the sandboxes and pools were promised, by the image of each.
func (e *Engine) taken() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	total := e.pools.taken()
	for _, s := range e.sandboxes {
		s.mu.Lock()
		total += s.cost
		s.mu.Unlock()
	}
	return total
}

// memAvailable is the kernel's estimate, in bytes.
func memAvailable() int64 {
	b, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}
