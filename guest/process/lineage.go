package process

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxLives bounds how many lives of the sandbox an output knows of: the first, by which
	// a process is told from another, and the newest.
	maxLives = 32
	// maxMarks and markEvery: how many moments of writing are known, and how far they are
	// apart. A life is over at least markEvery before the next begins, and that is told
	// within the time of half of the marks.
	maxMarks  = 512
	markEvery = 10 * time.Millisecond
)

// life is one life of the sandbox, and the offset at which it began.
type life struct {
	generation uint64
	from       int64
}

// lineage are the lives that an output comes from, the newest last. After a rollback the
// process writes again from an offset that it had passed in a life that no longer has
// been: the offset alone does not tell a reader that it has read something else.
type lineage struct {
	lives []life
	marks []mark
	lost  bool // there were marks before the first
}

// mark is a moment of writing, and the offset then.
type mark struct {
	at     int64 // nanoseconds since 1970: the server tells the time of a save so
	offset int64
}

// mark takes note of a write.
func (l *lineage) mark(now time.Time, offset int64) {
	at := now.UnixNano()
	if n := len(l.marks); n > 0 && at-l.marks[n-1].at >= 0 && at-l.marks[n-1].at < int64(markEvery) {
		return
	}
	if len(l.marks) == maxMarks {
		l.marks = l.marks[:copy(l.marks, l.marks[maxMarks/2:])]
		l.lost = true
	}
	l.marks = append(l.marks, mark{at, offset})
}

// begin adds a life. What was written since the image was saved is of it, also what came
// before anybody could say so.
func (l *lineage) begin(generation uint64, saved time.Time, end int64) {
	from := end
	if !saved.IsZero() {
		i := len(l.marks)
		for ; i > 0 && l.marks[i-1].at > saved.UnixNano(); i-- {
			from = l.marks[i-1].offset
		}
		if i == 0 && l.lost { // it cannot be told any more: rather too early than too late
			from = 0
		}
	}
	if len(l.lives) == maxLives {
		l.lives = slices.Delete(l.lives, 1, 2)
	}
	l.lives = append(l.lives, life{generation, from})
}

// common returns how far a reader that has read in these lives can have read what is in
// this output, at most to end. same is false where no life is the same: after a rollback to
// before its process began, the number of that can be another's. One that does not say its
// lives is believed.
func (l *lineage) common(read []life, end int64) (to int64, same bool) {
	if len(read) == 0 {
		return end, true
	}
	for i := len(read) - 1; i >= 0; i-- {
		for j := len(l.lives) - 1; j >= 0; j-- {
			if read[i] != l.lives[j] {
				continue
			}
			if i == 0 && len(read) == maxLives || j == 0 && len(l.lives) == maxLives {
				return 0, true // what was between is not known any more
			}
			for _, other := range append(read[i+1:len(read):len(read)], l.lives[j+1:]...) {
				end = min(end, other.from)
			}
			return end, true
		}
	}
	return 0, false
}

// String is the form in which a reader is told the lives that it reads in.
func (l *lineage) String() string {
	var b strings.Builder
	for i, one := range l.lives {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d:%d", one.generation, one.from)
	}
	return b.String()
}

// parseLives reads what String wrote.
func parseLives(s string) ([]life, error) {
	if s == "" {
		return nil, nil
	}
	parts := strings.Split(s, ",")
	if len(parts) > maxLives {
		return nil, fmt.Errorf("%d lives, more than %d", len(parts), maxLives)
	}
	lives := make([]life, 0, len(parts))
	for _, part := range parts {
		g, f, _ := strings.Cut(part, ":")
		generation, err := strconv.ParseUint(g, 10, 64)
		if err != nil {
			return nil, err
		}
		from, err := strconv.ParseUint(f, 10, 63)
		if err != nil {
			return nil, err
		}
		lives = append(lives, life{generation, int64(from)})
	}
	return lives, nil
}
