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

// deadline is when something ends. The time that the sandbox spends in an image does not
// count. The zero value is none.
type deadline struct {
	mu     sync.Mutex // guards all below
	expire func()
	at     time.Time
	since  time.Time   // when it was set, or what it counts from
	timer  *time.Timer // nil when there is no deadline, or it is over
	waited bool        // for the server, after a leap
}

// set sets the deadline, in the place of one that there was; zero means none. since is the
// moment from which on it counts: what was saved before that is older than the deadline.
// expire is called once, with no lock held, when it is over.
func (d *deadline) set(since, at time.Time, expire func()) {
	if at.IsZero() {
		d.stop()
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire, d.since = expire, since
	if d.timer != nil && d.at.Equal(at) {
		return
	}
	d.at, d.waited = at, false
	if d.timer == nil {
		d.timer = time.AfterFunc(time.Until(at), d.fire)
	} else {
		d.timer.Reset(time.Until(at))
	}
}

func (d *deadline) fire() {
	if expire := d.due(); expire != nil {
		expire()
	}
}

// due returns what is to be done, if the deadline is over.
func (d *deadline) due() (expire func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := time.Until(d.at)
	switch {
	case d.timer == nil:
	case left > 0: // shifted or set anew while this was about to run
		d.timer.Reset(left)
	case left < -leap && !d.waited:
		d.waited = true
		d.timer.Reset(leapPatience)
	default:
		d.timer = nil
		return d.expire
	}
	return nil
}

// shift moves the deadline, unless it is one of the time after the save.
func (d *deadline) shift(saved time.Time, by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.since.After(saved) {
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
