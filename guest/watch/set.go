package watch

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"sync"
	"time"

	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/spawn"
	"cubesandbox/guest/users"
)

// Bounds of all watchers together.
const (
	// maxWatchers is how many there may be, by streams and by polling.
	maxWatchers = 64
	// maxWatches is how many directories they may watch.
	maxWatches = 32_768
	// maxQueued is how much they may keep for their clients, in bytes, about.
	maxQueued = 8 << 20
	// forgotten is how long one that is polled keeps its place for sure, though nobody
	// asks for what it has. A restore may move the clock: the time counts then too.
	forgotten = 5 * time.Minute
)

// Set is all watchers of an agent. Its methods may be called concurrently.
type Set struct {
	runner   AsUser
	describe func() func(path string) *filesystem.EntryInfo
	kind     func(fd int) (int64, error) // of file system, as statfs(2) says

	mu      sync.Mutex // guards all below
	open    map[*Watcher]bool
	kept    map[string]*polled // by their ids; they are open too
	watches int
	queued  int // bytes
}

// polled is a watcher that a client asks for what it has.
type polled struct {
	*Watcher
	asked time.Time // last
}

// NewSet returns a Set that looks at directories by runner. describe is called by it
// too; it returns what says what is at a path, nil if nothing can be said.
func NewSet(runner AsUser, describe func() func(path string) *filesystem.EntryInfo) *Set {
	return &Set{
		runner: runner, describe: describe, kind: kindOf,
		open: make(map[*Watcher]bool), kept: make(map[string]*polled),
	}
}

// Open watches a directory with the rights of a user. Whoever opened the watcher
// closes it; ctx is of the opening alone. Errors are those of this package, of AsUser, and *os.PathError.
func (s *Set) Open(ctx context.Context, user, path string, o Options) (*Watcher, error) {
	s.evict()
	w := &Watcher{set: s, user: user, options: o}
	s.mu.Lock()
	full := len(s.open) >= maxWatchers
	if !full {
		s.open[w] = true
	}
	s.mu.Unlock()
	if full {
		return nil, fmt.Errorf("%w: there are %d watchers; remove one", ErrTooMany, maxWatchers)
	}
	if err := w.init(); err != nil {
		s.remove(w)
		return nil, err
	}
	err := s.runner.Do(ctx, user, func(u users.User) error { return w.begin(spawn.Resolve(u, path)) })
	if err != nil {
		w.file.Close()
		s.forget(w)
		s.remove(w)
		return nil, err
	}
	alive, stop := context.WithCancel(context.Background())
	w.stop = stop
	go w.run(alive)
	return w, nil
}

// Keep gives a watcher an id, by which it is found until Remove closes it, or another
// takes its place because nobody has asked for it for minutes.
func (s *Set) Keep(w *Watcher) (id string) {
	id = "w" + random(20)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[id] = &polled{w, time.Now().Round(0)} // the clock that a restore moves too
	return id
}

// Ask returns the watcher of that id for its client, nil if there is none.
func (s *Set) Ask(id string) *Watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.kept[id]
	if p == nil {
		return nil
	}
	p.asked = time.Now().Round(0)
	return p.Watcher
}

// Remove closes the watcher of that id, and reports whether there was one.
func (s *Set) Remove(id string) bool {
	s.mu.Lock()
	p := s.kept[id]
	delete(s.kept, id)
	s.mu.Unlock()
	if p != nil {
		p.Close()
	}
	return p != nil
}

// evict makes room, where there is none, by closing polled watchers that are over; if
// none is, the one whose client has not asked for the longest, after minutes.
func (s *Set) evict() {
	var kept map[string]*polled
	oldest, least := "", time.Now().Add(-forgotten)
	s.mu.Lock()
	if len(s.open) >= maxWatchers {
		kept = maps.Clone(s.kept)
		for id, p := range kept {
			if p.asked.Before(least) {
				oldest, least = id, p.asked
			}
		}
	}
	s.mu.Unlock()
	room := false
	for id, p := range kept {
		if p.over() {
			room = s.Remove(id) || room
		}
	}
	if !room && oldest != "" {
		s.Remove(oldest)
	}
}

// remove takes a closed watcher off the list.
func (s *Set) remove(w *Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, w)
}

// enter takes a watch of those that there may be, and reports whether there was one.
func (s *Set) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches >= maxWatches {
		return false
	}
	s.watches++
	return true
}

// leave gives n watches back.
func (s *Set) leave(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches -= n
}

// forget gives back all watches of a watcher of which nobody uses the tree any more.
func (s *Set) forget(w *Watcher) {
	s.leave(len(w.tree.nodes))
	w.tree = newTree()
}

// take takes so many bytes of those that may be queued, and reports whether they were
// there; a negative number gives back.
func (s *Set) take(bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued+bytes > maxQueued {
		return false
	}
	s.queued += bytes
	return true
}

// random returns n characters that nobody guesses.
func random(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	id := make([]byte, 0, n)
	for len(id) < n {
		b := make([]byte, 2*n)
		rand.Read(b) // never fails: it ends the program instead
		for _, c := range b {
			if int(c) < 256/len(letters)*len(letters) && len(id) < n {
				id = append(id, letters[int(c)%len(letters)])
			}
		}
	}
	return string(id)
}
