package watch

import "cubesandbox/guest/envdpb/filesystem"

// Bounds of what a watcher keeps for its client; see also maxQueued.
const (
	maxEvents = 32_768
	maxBytes  = 4 << 20 // of names and entries, about
)

// entryBytes is what an entry costs beyond its name, about.
const entryBytes = 512

// queue holds the events that were not taken yet.
type queue struct {
	reserve func(bytes int) bool // of what all queues together may hold
	events  []Event
	bytes   int
	full    bool
}

// put adds an event, and reports whether there was room for it. After there was none,
// there never is. An event that equals the last one is the same event, as in inotify:
// a program that writes a file in small pieces is one event until that is taken.
func (q *queue) put(e Event) bool {
	if q.full {
		return false
	}
	if n := len(q.events); n > 0 && q.events[n-1].Name == e.Name && q.events[n-1].Type == e.Type && repeats(e.Type) {
		q.events[n-1].Entry = e.Entry
		return true
	}
	cost := len(e.Name) + 64
	if e.Entry != nil {
		cost += entryBytes + len(e.Entry.Path) + len(e.Entry.GetSymlinkTarget())
	}
	if len(q.events) >= maxEvents || q.bytes+cost > maxBytes || !q.reserve(cost) {
		q.full = true
		return false
	}
	q.events, q.bytes = append(q.events, e), q.bytes+cost
	return true
}

// repeats reports whether an event may be told once instead of twice.
func repeats(t filesystem.EventType) bool {
	return t == filesystem.EventType_EVENT_TYPE_WRITE || t == filesystem.EventType_EVENT_TYPE_CHMOD
}

// take empties the queue.
func (q *queue) take() []Event {
	events := q.events
	q.reserve(-q.bytes)
	q.events, q.bytes = nil, 0
	return events
}
