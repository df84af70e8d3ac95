package gvisor

import (
	"context"
	"fmt"
	"time"
)

// What an agent reports is told at once where little happens, and else at a bounded rate:
// a program can have itself ended for want of memory many times a second, and an agent
// that is not what it was can say anything.
const (
	eventBurst = 8           // told at once
	eventPace  = time.Second // the time between two after that
	eventWait  = 20 * time.Millisecond
)

// pace decides which events are told. Only one goroutine uses it.
type pace struct {
	at      time.Time // when the next would be due if they came one every eventPace
	leftOut int
}

// admit reports whether an event that comes now is told.
func (p *pace) admit(now time.Time) bool {
	if earliest := now.Add(-(eventBurst - 1) * eventPace); p.at.Before(earliest) {
		p.at = earliest
	}
	if p.at.After(now) {
		p.leftOut++
		return false
	}
	p.at = p.at.Add(eventPace)
	return true
}

// detail is what is told, with how many others were not.
func (p *pace) detail(text string) string {
	if p.leftOut == 0 {
		return text
	}
	text = fmt.Sprintf("%s (and %d events before that were left out)", text, p.leftOut)
	p.leftOut = 0
	return text
}

// rest waits for a while, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
