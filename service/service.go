package service

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	cube "cubesandbox"
)

// cpuOvercommit is how many of the guests' processors one of the host's may be
// promised to, where nothing else is said: most sandboxes wait most of the time,
// and memory is what bounds them.
const cpuOvercommit = 256

// upkeepEvery is how often the service looks whether templates have changed and
// forgets what ended long ago.
const upkeepEvery = 5 * time.Second

// Images is the part of the image store that the service needs.
type Images interface {
	// Image returns the description of an image; ErrNotFound where there is none.
	Image(id cube.ImageID) (cube.Image, error)
	// Images returns all of them, with errors for those that cannot be read.
	Images() ([]cube.Image, error)
	// Hide makes one that nobody finds any more; its files stay.
	Hide(id cube.ImageID) error
	// Hidden returns those that are hidden and not deleted.
	Hidden() ([]cube.ImageID, error)
	// Delete frees one, hidden or not; ErrNotFound where there is none.
	Delete(id cube.ImageID) error
	// DeleteHidden is Delete, but ErrConflict where it is not hidden: a template that is
	// made again has the id that it had.
	DeleteHidden(id cube.ImageID) error
	// Unverified returns those that were neither written nor read whole since the
	// machine was started.
	Unverified() ([]cube.ImageID, error)
	// Sync makes one durable.
	Sync(ctx context.Context, id cube.ImageID) error
	// Verify reads one whole; ErrCorrupt. VerifyOnce leaves out what was read since the
	// machine was started.
	Verify(ctx context.Context, id cube.ImageID) error
	VerifyOnce(ctx context.Context, id cube.ImageID) error
	// Spaces says of each, hidden ones too, what it takes alone and with others.
	Spaces() map[cube.ImageID]cube.Space
	// FreePages frees what is left of deleted ones, where no image and no sandbox has
	// memory in it any more.
	FreePages() error
	// Fold copies together what images have in pages of which most is needed by nobody;
	// perSecond bytes at most.
	Fold(ctx context.Context, perSecond int64) (cube.Folded, error)
	Collector
}

// Names are the names of templates.
type Names interface {
	// Names returns the template that each means. With an error, those that can be read.
	Names() (map[string]cube.ImageID, error)
	// RemoveName takes a name away; an unknown one is no error.
	RemoveName(name string) error
}

// Config is what a service stands on.
type Config struct {
	Engine cube.Engine
	Store  cube.Store
	Images Images
	Names  Names
	// Collectors know of garbage beside images.
	Collectors []Collector
	// CPUs is how many processors may be promised to running sandboxes together; 0:
	// 256 for each of the machine's.
	CPUs int
	// Booted and Restored are the sizes of the pools: booted sentries for each shape
	// of template, restored and frozen sandboxes for each template with a name.
	Booted, Restored int
	// Keep is how long it is remembered why a sandbox ended; 0: 24 hours.
	Keep time.Duration
	// DownAt is when somebody last ended everything that ran, and no service was told
	// since; zero for never. What was made before did not die.
	DownAt time.Time
	// CollectEvery is how often garbage is looked for; 0: every 10 minutes.
	CollectEvery time.Duration
	// FoldPerSecond is how much may be read and written for a fold, in bytes; 0: 32 MiB.
	FoldPerSecond int64
	Log           *slog.Logger
}

// Service implements cube.Service.
type Service struct {
	engine cube.Engine
	store  cube.Store
	images Images
	names  Names
	conf   Config
	log    *slog.Logger
	cpus   ledger

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // whatever runs by itself
	// closing is held while something is added to wg, and while ctx is ended.
	closing    sync.Mutex
	unburied   map[cube.SandboxID]bool // whose end a start could not record: the next writes it
	unsettled  []*work                 // what a start could not conclude; upkeep's after that
	looked     chan struct{}           // closed when what a start leaves for later is done
	changing   sync.Mutex              // held while the record of a snapshot that exists changes
	collecting sync.Mutex              // held while garbage is collected
	filling    sync.Mutex              // guards the next, and is held while the pools are told
	pooled     map[cube.ImageID]int    // what the pools were last told

	mu        sync.RWMutex // guards the following
	boxes     map[cube.SandboxID]*box
	order     []*box // the same, by start; replaced, never changed
	ended     map[cube.SandboxID]cube.Record
	snapshots map[cube.ImageID]cube.Snapshot
	hidden    map[cube.ImageID]bool // images that were deleted while they were in use
	plans     map[string]*work
	answers   map[string]cube.Answer
	asking    map[string]chan struct{} // keys whose request is at work
	returning map[cube.SandboxID]bool  // ended, and to be brought back by themselves
}

var _ cube.Service = (*Service)(nil)

// Open brings records and reality together and begins to serve. Close it.
func Open(ctx context.Context, c Config) (*Service, error) {
	if c.CPUs == 0 {
		c.CPUs = cpuOvercommit * runtime.NumCPU()
	}
	if c.Keep == 0 {
		c.Keep = 24 * time.Hour
	}
	if c.CollectEvery == 0 {
		c.CollectEvery = collectEvery
	}
	if c.FoldPerSecond == 0 {
		c.FoldPerSecond = foldPerSecond
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		engine: c.Engine, store: c.Store, images: c.Images, names: c.Names, conf: c, log: c.Log,
		cpus:  ledger{total: int64(c.CPUs)},
		boxes: map[cube.SandboxID]*box{}, ended: map[cube.SandboxID]cube.Record{}, snapshots: map[cube.ImageID]cube.Snapshot{},
		hidden: map[cube.ImageID]bool{}, plans: map[string]*work{}, answers: map[string]cube.Answer{}, asking: map[string]chan struct{}{}, looked: make(chan struct{}), returning: map[cube.SandboxID]bool{}, unburied: map[cube.SandboxID]bool{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	// From before the look at reality, so that nothing falls between.
	events := s.engine.Events(s.ctx)
	if err := s.reconcile(ctx); err != nil {
		s.cancel()
		return nil, fmt.Errorf("bring records and reality together: %w", err)
	}
	s.refreshPools()
	s.spawn(func() { s.follow(events) })
	// Each by itself: one that has to be tried again is in nobody's way. The engine bounds
	// how many are restored at once.
	for _, r := range s.willReturn() {
		s.spawn(func() { s.autoRecover(r) })
	}
	s.spawn(func() {
		defer close(s.looked)
		s.collect()
		s.examine()
	})
	s.spawn(s.upkeep)
	s.spawn(s.foldAgain)
	for _, b := range s.all() {
		b.enter()
		s.arm(b)
		b.leave()
	}
	return s, nil
}

// spawn runs f by itself, unless the service is being closed, which waits for it.
func (s *Service) spawn(f func()) bool {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.wg.Go(f)
	return true
}

// Close stops serving and waits for verbs under way. Sandboxes run on.
func (s *Service) Close() error {
	s.closing.Lock()
	s.cancel()
	s.closing.Unlock()
	for _, b := range s.all() {
		b.enter()
		b.disarm()
		b.leave()
	}
	s.wg.Wait()
	return nil
}

// upkeep does what nobody asks for.
func (s *Service) upkeep() {
	tick, sweep := time.NewTicker(upkeepEvery), time.NewTicker(s.conf.CollectEvery)
	defer tick.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-tick.C:
			s.concludeAgain()
			s.refreshPools()
			s.forget()
			s.forgetAnswers()
		case <-sweep.C:
			s.collect()
		case <-s.ctx.Done():
			return
		}
	}
}

// all returns every sandbox that has not ended, in no order.
func (s *Service) all() []*box {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*box, 0, len(s.boxes))
	for _, b := range s.boxes {
		out = append(out, b)
	}
	return out
}

// ordered returns all by start, the newest first if asked for.
func (s *Service) ordered(newestFirst bool) iter.Seq2[int, *box] {
	s.mu.Lock()
	if s.order == nil {
		s.order = slices.SortedFunc(maps.Values(s.boxes), func(a, b *box) int {
			return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.id, b.id))
		})
	}
	order := s.order
	s.mu.Unlock()
	if newestFirst {
		return slices.Backward(order)
	}
	return slices.All(order)
}

// find returns a sandbox that has not ended.
func (s *Service) find(id cube.SandboxID) (*box, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if b, ok := s.boxes[id]; ok {
		return b, nil
	}
	return nil, s.unknown(id)
}

// unknown is the error for an id without a box. mu is held.
func (s *Service) unknown(id cube.SandboxID) error {
	if r, ok := s.ended[id]; ok && r.End != nil {
		return s.endedErrorLocked(r)
	}
	return fmt.Errorf("sandbox %s: %w", id, cube.ErrNotFound)
}

// endedError says how a sandbox ended, and from what it can be brought back.
func (s *Service) endedError(r cube.Record) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.endedErrorLocked(r)
}

func (s *Service) endedErrorLocked(r cube.Record) error {
	e := &cube.EndedError{ID: r.ID, End: *r.End}
	if r.Recoverable {
		e.Recovery = s.wayBackLocked(r.ID)
	}
	return e
}
