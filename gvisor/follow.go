package gvisor

import (
	"context"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/agentclient"
)

var eventKinds = map[string]cube.EventKind{
	agentapi.EventOOM:      cube.EventOOM,
	agentapi.EventInitDied: cube.EventInitDied,
}

// follow passes on what the agent of the current life reports, until that life
// is over.
func (e *Engine) follow(s *sandbox) {
	ctx, stop := context.WithCancel(e.ctx)
	s.mu.Lock()
	if s.stop != nil {
		s.stop()
	}
	s.stop = stop
	life, gen := s.life, s.info.Generation
	s.mu.Unlock()
	e.wg.Go(func() {
		defer stop()
		// What happened before the image was made is not news.
		var after uint64
		if n, ok := e.lastEvent.LoadAndDelete(life); ok {
			after = n.(uint64)
		}
		retry := time.NewTimer(0)
		defer retry.Stop()
		for {
			select {
			case <-retry.C:
			case <-ctx.Done():
				return
			}
			// The stream ends when cube-network is restarted; it is then taken up again.
			agentclient.FollowEvents(ctx, e.control(life), after, func(ev agentapi.Event) {
				after = ev.Number
				if kind, ok := eventKinds[ev.Kind]; ok {
					e.events.send(cube.Event{Kind: kind, Sandbox: s.id, Generation: gen, At: time.Now(), Detail: ev.Detail})
				}
			})
			retry.Reset(time.Second)
		}
	})
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
