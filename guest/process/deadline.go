package process

import (
	"sync"
	"time"
)

const (
	// leap is how late a deadline may be noticed before that is taken for a
	// restore: clocks inside run on while the sandbox is only an image.
	leap = 2 * time.Second
	// leapPatience is how long the server then has to say how long that was.
	leapPatience = 10 * time.Second
)

// deadline ends a process some time after its start, of which the time that it
// spent in an image does not count.
type deadline struct {
	expire func()

	mu     sync.Mutex // guards all below
	at     time.Time
	timer  *time.Timer // nil when there is no deadline, or it is over
	waited bool        // for the server, after a leap
}

// arm sets the deadline; zero means none.
func (d *deadline) arm(at time.Time, expire func()) {
	if at.IsZero() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at, d.expire = at, expire
	d.timer = time.AfterFunc(time.Until(at), d.fire)
}

func (d *deadline) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := time.Until(d.at)
	switch {
	case d.timer == nil:
	case left > 0: // shifted while this was about to run
		d.timer.Reset(left)
	case left < -leap && !d.waited:
		d.waited = true
		d.timer.Reset(leapPatience)
	default:
		d.timer = nil
		d.expire()
	}
}

// shift moves the deadline.
func (d *deadline) shift(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.at = d.at.Add(by)
		d.waited = false
		d.timer.Reset(max(time.Until(d.at), 0))
	}
}

func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// Shift moves the deadlines of all processes: the sandbox was in an image for so
// long.
func (t *Table) Shift(by time.Duration) {
	for _, p := range t.List() {
		p.deadline.shift(by)
	}
}
