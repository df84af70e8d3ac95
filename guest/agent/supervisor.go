package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/cgroup"
	"cubesandbox/guest/spawn"

	"golang.org/x/sys/unix"
)

// supervisor keeps an init running.
type supervisor struct {
	events *eventLog

	mu   sync.Mutex // guards all below
	init *spawn.Init
	next chan struct{} // closed and replaced when there is a new init
	// ended is since when there is no init; zero: there is one.
	ended  time.Time
	failed error // why the last start of one failed; nil: it did not
}

// absence is how long there may be no init before that is said.
const absence = time.Second

func newSupervisor(events *eventLog) *supervisor {
	return &supervisor{events: events, next: make(chan struct{})}
}

// start starts the first init; from then on a dead one is replaced.
func (s *supervisor) start() error {
	i, err := s.launch()
	if err != nil {
		return err
	}
	go s.watch(i)
	return nil
}

func (s *supervisor) launch() (*spawn.Init, error) {
	i, err := spawn.Launch()
	if err != nil {
		return nil, err
	}
	if err := cgroup.MoveInit(i.PID()); err != nil {
		i.Kill()
		return nil, err
	}
	s.present(i)
	return i, nil
}

// present takes note of a new init.
func (s *supervisor) present(i *spawn.Init) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init, s.ended, s.failed = i, time.Time{}, nil
	close(s.next)
	s.next = make(chan struct{})
}

// absent takes note that there is no init, and why none could be started.
func (s *supervisor) absent(failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.IsZero() {
		s.ended = time.Now()
	}
	s.failed = failed
}

// watch replaces init for as long as the agent lives. A guest that kills init
// again and again only slows itself down.
func (s *supervisor) watch(i *spawn.Init) {
	pause := time.Duration(0)
	for {
		born := time.Now()
		<-i.Done()
		s.absent(nil)
		s.events.add(agentapi.EventInitDied, "the users' init ended, and all processes with it")
		for {
			if time.Since(born) > time.Second {
				pause = 0
			}
			// waits for nothing: it limits how often init is started
			time.Sleep(pause)
			pause = min(2*pause+10*time.Millisecond, time.Second)
			next, err := s.launch()
			if err == nil {
				i = next
				break
			}
			s.absent(err)
			s.events.add(agentapi.EventInitDied, fmt.Sprintf("starting a new init failed: %v", err))
			born = time.Now()
		}
	}
}

// late reports whether no program can be started: init owes an answer, or there is none.
// Then gone says what is known of why.
func (s *supervisor) late() (late bool, gone string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failed != nil:
		return true, s.failed.Error()
	case !s.ended.IsZero():
		if time.Since(s.ended) < absence {
			return false, ""
		}
		return true, "another has not begun yet"
	}
	return s.init != nil && s.init.Late(), ""
}

// replacement is how long a request waits for a new init.
const replacement = 5 * time.Second

// current returns the running init; if it has died, the next one.
func (s *supervisor) current(ctx context.Context) (*spawn.Init, error) {
	s.mu.Lock()
	i, next := s.init, s.next
	s.mu.Unlock()
	if i.Alive() {
		return i, nil
	}
	ctx, cancel := context.WithTimeout(ctx, replacement)
	defer cancel()
	select {
	case <-next:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.init, nil
	case <-ctx.Done():
		return nil, spawn.ErrInitDied
	}
}

// namespace returns a descriptor of the users' mount namespace, for package asuser.
func (s *supervisor) namespace(ctx context.Context) (int, func(), error) {
	i, err := s.current(ctx)
	if err != nil {
		return -1, nil, err
	}
	raw, err := i.MountNamespace().SyscallConn()
	if err != nil {
		return -1, nil, spawn.ErrInitDied
	}
	fd := -1
	err = errors.Join(raw.Control(func(n uintptr) {
		fd, _ = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0)
	}))
	if err != nil || fd < 0 {
		return -1, nil, spawn.ErrInitDied
	}
	return fd, func() { unix.Close(fd) }, nil
}
