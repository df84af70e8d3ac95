package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	cube "cubesandbox"
)

// overhead is what a sandbox is charged beyond its guest memory, in bytes.
const overhead = 64 << 20

// Version is what images of this engine carry as Engine.
const Version = "fake-1"

// Rootfs is the digest of the only root file system that Boot knows.
const Rootfs = "fa4e000000000000000000000000000000000000000000000000000000000000"

// Point is a place in a verb where Hook can act.
type Point string

// The points, in the order in which a verb passes them.
const (
	// PointStart: capacity is reserved, nothing runs yet (Boot, Create, Resume,
	// Rollback, once for each new sandbox of Clone).
	PointStart Point = "start"
	// PointLoad: an image is about to be read.
	PointLoad Point = "load"
	// PointSave: the sandbox stands still, its state is about to be written.
	PointSave Point = "save"
	// PointPublish: the image is written and not yet known.
	PointPublish Point = "publish"
	// PointSwitch: Rollback is about to switch, the new life has answered.
	PointSwitch Point = "switch"
)

// Machine is the host of fake sandboxes. Safe for concurrent use.
type Machine struct {
	now func() time.Time

	mu        sync.Mutex // guards all that follows
	memory    int64
	sandboxes map[cube.SandboxID]*sandbox
	starting  map[cube.SandboxID]int64 // ids that a verb is making, and their bytes
	second    int64                    // bytes of lives that stand beside an old one
	images    map[cube.ImageID]*image
	servers   map[uint16]Server
	hooks     map[Point]func(context.Context) error
	readers   map[*reader]struct{}
	pool      map[cube.ImageID][]*life // restored and frozen, unclaimed
	hidden    map[cube.ImageID]bool
	silent    map[cube.SandboxID]silence
	asked     int
}

// NewMachine makes a host with the given memory in bytes.
func NewMachine(memory int64) *Machine {
	return &Machine{
		now: time.Now, memory: memory,
		sandboxes: map[cube.SandboxID]*sandbox{}, starting: map[cube.SandboxID]int64{},
		images: map[cube.ImageID]*image{}, servers: map[uint16]Server{},
		hooks:   map[Point]func(context.Context) error{},
		hidden:  map[cube.ImageID]bool{},
		silent:  map[cube.SandboxID]silence{},
		readers: map[*reader]struct{}{}, pool: map[cube.ImageID][]*life{},
	}
}

// SetMemory changes how much memory the host has, in bytes. What runs stays.
func (m *Machine) SetMemory(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memory = bytes
}

// Hook has f called whenever a verb passes p, with the context of the verb; an
// error fails the verb. nil takes the hook away.
func (m *Machine) Hook(p Point, f func(context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hooks[p] = f
}

// AddTemplate publishes a template whose guest holds state.
func (m *Machine) AddTemplate(digest [32]byte, limits cube.Limits, state map[string]string) cube.ImageID {
	id := cube.TemplateIDFromDigest(digest)
	img := newImage(cube.Image{ID: id, Kind: cube.KindTemplate, Created: m.now(), Limits: limits}, state)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.images[id] = img
	return id
}

// Images returns what is published.
func (m *Machine) Images() []cube.Image {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []cube.Image
	for _, img := range m.images {
		out = append(out, img.Image)
	}
	return out
}

// DeleteImage forgets an image.
func (m *Machine) DeleteImage(id cube.ImageID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.images[id] == nil {
		return fmt.Errorf("image %s: %w", id, cube.ErrNotFound)
	}
	delete(m.images, id)
	delete(m.hidden, id)
	return nil
}

// Corrupt changes an image behind the engine's back, so that its sum is wrong.
func (m *Machine) Corrupt(id cube.ImageID) error {
	return m.changeImage(id, func(img *image) {
		img.state = maps.Clone(img.state)
		img.state["corrupt"] = "yes"
	})
}

// Tear makes an image what a power cut leaves of one that was not durable yet.
func (m *Machine) Tear(id cube.ImageID) error {
	if err := m.Corrupt(id); err != nil {
		return err
	}
	return m.changeImage(id, func(img *image) { img.Durable = false })
}

// TearManifest makes it one of which not even what it says of itself can be read.
func (m *Machine) TearManifest(id cube.ImageID) error {
	return errors.Join(m.Tear(id), m.changeImage(id, func(img *image) { img.unread = true }))
}

// DropFiles makes a paused image one that has its files in its memory alone.
func (m *Machine) DropFiles(id cube.ImageID) error {
	return m.changeImage(id, func(img *image) { img.FilesBytes = 0 })
}

// Age makes an image that of another engine version.
func (m *Machine) Age(id cube.ImageID) error {
	return m.changeImage(id, func(img *image) { img.Engine = "fake-0" })
}

func (m *Machine) changeImage(id cube.ImageID, change func(*image)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.images[id]
	if old == nil {
		return fmt.Errorf("image %s: %w", id, cube.ErrNotFound)
	}
	img := *old
	change(&img)
	m.images[id] = &img
	return nil
}

// Die ends a sandbox from outside, as a crash of its kernel does.
func (m *Machine) Die(id cube.SandboxID, reason cube.DeathReason, detail string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sandboxes[id]
	if s == nil || s.State == cube.StateDead {
		return fmt.Errorf("sandbox %s: %w", id, cube.ErrNotFound)
	}
	s.life.end()
	s.State = cube.StateDead
	s.Death = &cube.Death{Reason: reason, Detail: detail, At: m.now()}
	m.emit(cube.Event{Kind: cube.EventDied, Sandbox: id, Generation: s.Generation, At: s.Death.At, Detail: detail, Death: s.Death})
	return nil
}

// PoolMembers counts the restored sandboxes that nobody has claimed.
func (m *Machine) PoolMembers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, members := range m.pool {
		n += len(members)
	}
	return n
}

// reach passes a point: its hook acts, then a cancelled context ends the verb.
func (m *Machine) reach(ctx context.Context, p Point) error {
	m.mu.Lock()
	f := m.hooks[p]
	m.mu.Unlock()
	if f != nil {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// free returns the memory that is left. mu is held.
func (m *Machine) free() int64 {
	left := m.memory - m.second
	for _, s := range m.sandboxes {
		if s.State != cube.StateDead {
			left -= charge(s.Limits)
		}
	}
	for _, n := range m.starting {
		left -= n
	}
	for id, members := range m.pool {
		if img := m.images[id]; img != nil {
			left -= int64(len(members)) * charge(img.Limits)
		}
	}
	return left
}

func charge(l cube.Limits) int64 { return l.MemoryMiB<<20 + overhead }

// admit asks for memory. mu is held.
func (m *Machine) admit(needed int64) error {
	if free := m.free(); needed > free {
		return &cube.CapacityError{What: "memory", Needed: needed, Free: max(0, free)}
	}
	return nil
}
