package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"cubesandbox/internal/failpoint"
)

// boundary is one pass of a fail point: the n-th since the server was started, and
// the k-th since the verb was asked for, counted from 1.
type boundary struct {
	point string
	n, k  int
}

func (b boundary) String() string { return fmt.Sprintf("%s#%d", b.point, b.k) }

// armed is what a server is started with to strike at a boundary.
func (b boundary) armed(action string) string { return fmt.Sprintf("%s=%s@%d", b.point, action, b.n) }

// trace is the file in which a server notes the fail points that it passes.
type trace struct{ path string }

func (tr trace) lines() []string {
	b, err := os.ReadFile(tr.path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// since returns the boundaries after the first n lines, in order.
func (tr trace) since(n int) (out []boundary) {
	total, here := map[string]int{}, map[string]int{}
	for i, point := range tr.lines() {
		total[point]++
		if i >= n {
			here[point]++
			out = append(out, boundary{point, total[point], here[point]})
		}
	}
	return out
}

// quiet waits until nothing has been passed for a while, or the server is dead.
func (tr trace) quiet(ctx context.Context) {
	for last := -1; ; {
		n := len(tr.lines())
		if n == last {
			return
		}
		last = n
		while, cancel := context.WithTimeout(ctx, quietTime)
		_, err := s.WaitEnd(while)
		cancel()
		if err == nil || ctx.Err() != nil {
			return
		}
	}
}

// restart kills the server and starts another that is armed, and traced.
func restart(ctx context.Context, arms string) (trace, error) {
	if !s.HasEnded() {
		if err := s.Signal(syscall.SIGKILL); err != nil {
			return trace{}, err
		}
	}
	dir, err := os.MkdirTemp("", "cube-trace-")
	if err != nil {
		return trace{}, err
	}
	tr := trace{filepath.Join(dir, "trace")}
	s.SetEnv(failpoint.Env+"="+arms, failpoint.TraceEnv+"="+tr.path)
	defer s.SetEnv()
	return tr, s.Start(ctx)
}

func (tr trace) remove() error {
	if tr.path == "" {
		return nil
	}
	return os.RemoveAll(filepath.Dir(tr.path))
}

// How long a server that was struck may take to be dead, and how long it is quiet
// when it has no more to do.
const (
	deathTime = 10 * time.Second
	quietTime = 150 * time.Millisecond
)

// row is a case, and how it went.
type row struct {
	Verb   string `json:"verb"`
	At     string `json:"at"`
	Action string `json:"action"`
	// Reached: the fault happened. Answered: the verb was, in spite of it. Happened:
	// the verb had had its effect when everything was there again.
	Reached  bool `json:"reached"`
	Answered bool `json:"answered"`
	Happened bool `json:"happened"`
	// Lost and Left say what was wrong; empty when nothing was.
	Lost string  `json:"lost,omitempty"`
	Left string  `json:"left,omitempty"`
	MS   float64 `json:"ms"`
}

func text(err error) string {
	if err == nil {
		return ""
	}
	s := err.Error()
	return s[:min(len(s), longestText)]
}

// longestText is as much of what was wrong as anybody reads, in bytes.
const longestText = 2000

// learn does a verb unharmed and returns the boundaries that it passes, and those
// that a server passes when it is started.
func learn(ctx context.Context, v verb) (passed []boundary, r row) {
	began := time.Now()
	r = row{Verb: v.name, At: "nowhere", Action: "none", Reached: true}
	u := &subject{tag: tag()}
	// What the last case has left to the next start is no part of what is counted.
	_, err := startClean(ctx)
	if err == nil {
		err = v.prepare(ctx, u)
	}
	var tr trace
	if err == nil {
		tr, err = restart(ctx, "")
	}
	defer func() { tr.remove() }()
	if err == nil {
		n := len(tr.lines())
		if err = v.do(ctx, u); err == nil && v.settle != nil {
			err = v.settle(ctx, u)
		}
		tr.quiet(ctx)
		passed, u.answered = tr.since(n), err == nil
		r.Answered = u.answered
	}
	r.check(ctx, v, u, err)
	r.MS = ms(began)
	return passed, r
}

// strike does a verb with a server that is killed at a boundary of it, and then at
// boundaries of its starts, one after the other. It returns what the last start passed.
func strike(ctx context.Context, v verb, at boundary, starts ...boundary) (row, []boundary) {
	began := time.Now()
	r := row{Verb: v.name, At: at.String(), Action: "kill"}
	u := &subject{tag: tag()}
	ctx = patiently(ctx)
	err := v.prepare(ctx, u)
	if err == nil {
		r.Reached, err = r.killed(ctx, v, u, at)
	}
	for _, b := range starts {
		if err != nil {
			break
		}
		r.At += ", then at " + b.String()
		tr, serr := restart(ctx, b.armed("kill"))
		if serr == nil { // it may be struck a moment after it has begun to answer
			tr.quiet(ctx)
		}
		r.Reached = r.Reached && s.HasEnded()
		tr.remove()
	}
	var passed []boundary
	if err == nil {
		passed, err = startClean(ctx)
	}
	r.check(ctx, v, u, err)
	r.MS = ms(began)
	return r, passed
}

// killed asks for a verb and waits for the server's end.
func (r *row) killed(ctx context.Context, v verb, u *subject, at boundary) (reached bool, err error) {
	tr, err := restart(ctx, at.armed("kill"))
	defer tr.remove()
	if err != nil {
		if s.HasEnded() { // it came by the boundary while it started
			return false, nil
		}
		return false, err
	}
	err = r.ask(ctx, v, u, tr)
	if !s.HasEnded() {
		if err != nil {
			return false, fmt.Errorf("the server lives, and does not do it: %w", err)
		}
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, deathTime)
	defer cancel()
	sig, err := s.WaitEnd(ctx)
	if err == nil && sig != syscall.SIGKILL {
		err = fmt.Errorf("the server ended by itself, by signal %d", sig)
	}
	return err == nil, err
}

// ask asks for a verb, and waits until the server does no more, or is dead.
func (r *row) ask(ctx context.Context, v verb, u *subject, tr trace) error {
	err := v.do(ctx, u)
	u.answered, r.Answered = err == nil, err == nil
	if err == nil && v.settle != nil && !s.HasEnded() {
		v.settle(ctx, u) // it does not settle where the server dies
	}
	tr.quiet(ctx)
	return err
}

// trip does a verb with a server in which something happens at a boundary that need
// not end it: an error, a panic, a pause. A server that lives is looked at as it is.
func trip(ctx context.Context, v verb, at boundary, action string) row {
	began := time.Now()
	r := row{Verb: v.name, At: at.String(), Action: action}
	u := &subject{tag: tag()}
	err := v.prepare(ctx, u)
	if err == nil {
		var tr trace
		tr, err = restart(ctx, at.armed(action))
		before := len(tr.lines())
		if err == nil {
			err = r.ask(ctx, v, u, tr)
			r.Reached = slices.Contains(tr.since(before), at)
		}
		tr.remove()
	}
	switch {
	case s.HasEnded() || action == "panic":
		_, err = startClean(ctx)
	case strings.HasPrefix(action, "error"):
		err = nil // that it fails is what was asked for
	}
	if err == nil {
		r.Happened, err = v.after(ctx, u)
	}
	if strings.HasPrefix(action, "error") {
		err = errors.Join(err, later(ctx))
	}
	r.conclude(ctx, u, err)
	r.MS = ms(began)
	return r
}

// later does what puts right what went wrong past a point of no return: the next start
// finishes a plan, and the next collection frees what could not be freed.
func later(ctx context.Context) error {
	all, err := plans(ctx)
	if err == nil && len(all) > 0 {
		_, err = startClean(ctx)
	}
	if err != nil {
		return err
	}
	return call(ctx, request{"POST", "/gc", "", map[string]bool{"dryRun": false}}, nil)
}

// startClean ends the server if it lives, and starts one that nothing happens to. It
// returns what that one passes until it answers.
func startClean(ctx context.Context) ([]boundary, error) {
	tr, err := restart(ctx, "")
	defer tr.remove()
	if err != nil {
		return nil, fmt.Errorf("the server does not start again: %w", err)
	}
	return tr.since(0), nil
}

// check looks whether all is whole. err is what went wrong before.
func (r *row) check(ctx context.Context, v verb, u *subject, err error) {
	if err == nil {
		r.Happened, err = v.after(ctx, u)
	}
	r.conclude(ctx, u, err)
}

// conclude looks whether all else is whole, takes away what the case made, and looks
// what is left.
func (r *row) conclude(ctx context.Context, u *subject, err error) {
	r.Lost = text(errors.Join(err, settled(ctx), untouched(ctx), readable(ctx)))
	r.Left = text(errors.Join(tidy(ctx), u.clear(ctx), settled(ctx), tidy(ctx), left(kept.before)))
}

func ms(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }
