package durable

import (
	"maps"
	"slices"
	"sync"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
)

// ledger is what clients have been told: all that a power cut must not take.
type ledger struct {
	mu        sync.Mutex // guards the maps; what they hold is their client's alone, between the cuts
	boxes     map[cube.SandboxID]*box
	snapshots map[cube.ImageID]*snapshot
	templates map[string]*template
	creates   []create
	counts    map[string]int // of what was shown, by a line for a person
}

func newLedger() *ledger {
	return &ledger{
		boxes: map[cube.SandboxID]*box{}, snapshots: map[cube.ImageID]*snapshot{},
		templates: map[string]*template{}, counts: map[string]int{},
	}
}

// verb is what a client may have asked for when its answer was lost.
type verb string

const (
	nothing  verb = ""
	verbStep verb = "step"
	verbSnap verb = "snapshot"
	verbHalt verb = "pause"
	verbWake verb = "resume"
	verbBack verb = "rollback"
	verbKill verb = "kill"
	verbCopy verb = "clone"
)

// box is a sandbox as its client knows it.
type box struct {
	client.Sandbox
	owner  int // which client's
	auto   bool
	paused bool
	killed bool
	st     state
	at     time.Time // when the last answer came
	doubt  verb      // whose answer was lost
	// recovered is when it was last brought back from a snapshot; zero for never.
	recovered time.Time
}

// snapshot is one that a client was answered, or might have been.
type snapshot struct {
	id      cube.ImageID
	source  cube.SandboxID
	name    string
	key     string
	st      state
	durable bool // the server has said so
	deleted bool
	doubt   bool // that it was deleted
}

// template is a name that was given to one.
type template struct {
	id      cube.ImageID // empty: there is none
	doubted bool         // another build or deletion was at work
}

// create is a request with a key, and what it was answered.
type create struct {
	n  client.NewSandbox
	id cube.SandboxID // empty: the answer was lost
}

func (l *ledger) add(b *box) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.boxes[b.ID] = b
}

func (l *ledger) addSnapshot(sn *snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.snapshots[sn.id] = sn
}

// show counts what was shown.
func (l *ledger) show(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what]++
}

// of are the living sandboxes of a client, in order.
func (l *ledger) of(owner int) []*box {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*box
	for _, id := range slices.Sorted(maps.Keys(l.boxes)) {
		if b := l.boxes[id]; b.owner == owner && !b.killed {
			out = append(out, b)
		}
	}
	return out
}

// snapshotsOf are those of a sandbox that are not deleted.
func (l *ledger) snapshotsOf(id cube.SandboxID) []*snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*snapshot
	for _, key := range slices.Sorted(maps.Keys(l.snapshots)) {
		if sn := l.snapshots[key]; sn.source == id && !sn.deleted && !sn.doubt {
			out = append(out, sn)
		}
	}
	return out
}

// durable notes what the server says of snapshots.
func (l *ledger) durable(all []client.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, now := range all {
		if sn := l.snapshots[now.ID]; sn != nil && now.Durable {
			sn.durable = true
		}
	}
}
