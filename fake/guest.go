package fake

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"

	cube "cubesandbox"
)

// sandbox is one sandbox of a Machine, whose mu guards it.
type sandbox struct {
	cube.Sandbox
	life *life
	busy chan struct{} // closed when the verb at work ends; nil when there is none
}

// life is one generation: a guest and the connections into it.
type life struct {
	mu       sync.Mutex // guards all that follows
	id       cube.SandboxID
	identity cube.Identity
	gen      cube.Generation
	state    map[string]string
	conns    map[*conn]struct{}
	over     bool
}

func newLife(state map[string]string) *life {
	return &life{state: maps.Clone(state), conns: map[*conn]struct{}{}}
}

// tell is what the agent is told before anything else gets in.
func (l *life) tell(id cube.SandboxID, who cube.Identity, gen cube.Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.identity, l.gen = id, who, gen
}

func (l *life) copyState() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.state)
}

// end resets every connection and lets no more in.
func (l *life) end() {
	l.mu.Lock()
	conns := slices.Collect(maps.Keys(l.conns))
	l.over = true
	l.mu.Unlock()
	for _, c := range conns {
		c.reset()
	}
}

// image is a saved state. It never changes: Machine replaces it as a whole.
type image struct {
	cube.Image
	state map[string]string
	sum   [32]byte
	// unread: its manifest cannot be read.
	unread bool
}

func newImage(meta cube.Image, state map[string]string) *image {
	img := &image{Image: meta, state: maps.Clone(state)}
	if img.state == nil {
		img.state = map[string]string{}
	}
	img.Engine, img.Rootfs, img.Agent = Version, Rootfs, Rootfs
	for k, v := range img.state {
		img.PagesBytes += int64(len(k) + len(v))
	}
	img.Bytes = img.PagesBytes
	img.sum = sum(img.state)
	return img
}

func sum(state map[string]string) [32]byte {
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(state)) {
		fmt.Fprintf(h, "%q=%q\n", k, state[k])
	}
	return [32]byte(h.Sum(nil))
}

// check says whether the image can be restored.
func (img *image) check() error {
	if img.Engine != Version {
		return fmt.Errorf("image %s was made by engine %s, this is %s; restore it with that version: %w", img.ID, img.Engine, Version, cube.ErrIncompatible)
	}
	if got := sum(img.state); got != img.sum {
		return &cube.CorruptError{Image: img.ID, File: "state", Detail: fmt.Sprintf("sum %x, expected %x", got[:4], img.sum[:4])}
	}
	return nil
}

// Guest is the inside of a sandbox, as its current life sees it.
type Guest struct{ l *life }

// Guest returns the inside of a running sandbox.
func (m *Machine) Guest(id cube.SandboxID) (Guest, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sandboxes[id]
	switch {
	case s == nil:
		return Guest{}, fmt.Errorf("sandbox %s: %w", id, cube.ErrNotFound)
	case s.State == cube.StateDead:
		return Guest{}, fmt.Errorf("sandbox %s: %w", id, cube.ErrDead)
	}
	return Guest{s.life}, nil
}

// Put sets a value.
func (g Guest) Put(key, value string) {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	g.l.state[key] = value
}

// Get returns a value, "" when it was never put.
func (g Guest) Get(key string) string {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	return g.l.state[key]
}

// Identity returns who this life is, as processes inside see it, and its generation.
func (g Guest) Identity() (cube.Identity, cube.Generation) {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	who := g.l.identity
	who.Env = maps.Clone(who.Env)
	if who.Hostname == "" {
		who.Hostname = g.l.id.Hostname()
	}
	return who, g.l.gen
}
