package agent

import (
	"sync"
	"time"

	"cubesandbox/guest/agentapi"
)

// maxEvents is how many events are kept.
const maxEvents = 256

// eventLog holds the newest events.
type eventLog struct {
	mu     sync.Mutex // guards all below
	last   uint64
	events []agentapi.Event
	more   chan struct{} // closed and replaced at each event
}

func newEventLog() *eventLog { return &eventLog{more: make(chan struct{})} }

func (l *eventLog) add(kind, detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	if len(l.events) == maxEvents {
		l.events = append(l.events[:0], l.events[1:]...)
	}
	l.events = append(l.events, agentapi.Event{Number: l.last, Kind: kind, Detail: detail, At: time.Now().UTC()})
	close(l.more)
	l.more = make(chan struct{})
}

// after returns the events above a number, and what is closed when there are more.
func (l *eventLog) after(n uint64) ([]agentapi.Event, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.events {
		if e.Number > n {
			return append([]agentapi.Event(nil), l.events[i:]...), l.more
		}
	}
	return nil, l.more
}

func (l *eventLog) newest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}
