package gvisor

import (
	"context"
	"strings"
	"time"
	"unicode"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/agentclient"
)

var eventKinds = map[string]cube.EventKind{
	agentapi.EventOOM:        cube.EventOOM,
	agentapi.EventInitDied:   cube.EventInitDied,
	agentapi.EventHook:       cube.EventHook,
	agentapi.EventHookFailed: cube.EventHookFailed,
}

// followDelay is how long after the beginning of a life its events are asked for.
const followDelay = 100 * time.Millisecond

// follow passes on what the agent of the current life reports, until that life
// is over.
func (e *Engine) follow(s *sandbox) {
	ctx, stop := context.WithCancel(e.ctx)
	s.mu.Lock()
	if s.stop != nil {
		s.stop()
	}
	s.stop = stop
	l, gen := s.life, s.info.Generation
	// What happened before the image was made is not news.
	if n, ok := e.lastEvent.LoadAndDelete(l.id); ok {
		s.seen = n.(uint64)
	}
	s.mu.Unlock()
	e.background(func() {
		defer stop()
		// Events are numbered, so none is missed; and whoever waits for the sandbox is
		// about to use the processors.
		retry := time.NewTimer(followDelay)
		defer retry.Stop()
		var told pace
		for {
			select {
			case <-retry.C:
			case <-ctx.Done():
				return
			}
			// The stream ends when cube-network is restarted; it is then taken up again.
			agentclient.FollowEvents(ctx, l.control(), s.lastSeen(), func(ev agentapi.Event) {
				s.saw(ev.Number)
				kind, ok := eventKinds[ev.Kind]
				if !ok || !told.admit(time.Now()) {
					rest(ctx, eventWait) // nor is it read faster
					return
				}
				e.events.send(cube.Event{Kind: kind, Sandbox: s.id, Generation: gen, At: time.Now(), Detail: told.detail(oneLine(ev.Detail))})
			})
			retry.Reset(time.Second)
		}
	})
}

func (s *sandbox) lastSeen() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func (s *sandbox) saw(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = max(s.seen, number)
}

// maxDetail bounds what an agent says of an event, in bytes: a hook's output is in it.
const maxDetail = 5 << 10

// oneLine makes what an agent says one harmless line.
func oneLine(s string) string {
	s, _, _ = strings.Cut(s[:min(len(s), maxDetail)], "\n")
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsGraphic(r) {
			return '?'
		}
		return r
	}, s)
}

// unfollow ends that, and returns at once.
func (s *sandbox) unfollow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}
