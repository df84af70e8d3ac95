// Package progress tells a person how far a long step is: a bar on a terminal,
// a plain line at the end of each step elsewhere (logs, CI), nothing to a nil
// Reporter.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Reporter begins steps. One step runs at a time; its methods may be called from
// one goroutine only.
type Reporter struct {
	w        io.Writer
	terminal bool
}

// Step is one step that has begun and must be ended by Done or Fail. All methods
// work on a nil Step and do nothing.
type Step struct {
	r     *Reporter
	name  string
	began time.Time
	bar   *progressbar.ProgressBar
	total int
}

// New returns a Reporter that writes to f: bars if it is a terminal.
func New(f *os.File) *Reporter {
	return &Reporter{w: f, terminal: term.IsTerminal(int(f.Fd()))}
}

// Plain returns a Reporter that writes plain lines.
func Plain(w io.Writer) *Reporter { return &Reporter{w: w} }

// Begin starts a step whose length is not yet known.
func (r *Reporter) Begin(name string) *Step {
	if r == nil {
		return nil
	}
	s := &Step{r: r, name: name, began: time.Now()}
	if r.terminal {
		s.bar = progressbar.NewOptions(-1,
			progressbar.OptionSetWriter(r.w),
			progressbar.OptionSetDescription(name),
			progressbar.OptionSetWidth(30),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(true),
			progressbar.OptionClearOnFinish())
	}
	return s
}

// Note writes one line between steps.
func (r *Reporter) Note(format string, args ...any) {
	if r != nil {
		fmt.Fprintf(r.w, format+"\n", args...)
	}
}

// Grow makes the step n units longer: work that it did not know of before.
func (s *Step) Grow(n int) {
	if s == nil || s.bar == nil {
		return
	}
	s.total += n
	s.bar.ChangeMax(s.total)
}

// Add tells that n more units are done.
func (s *Step) Add(n int) {
	if s == nil || s.bar == nil {
		return
	}
	// The bar refuses to go beyond its end; the step then merely looks finished.
	_ = s.bar.Add(n)
}

// Done ends the step: one line with its name, what came of it and its time.
func (s *Step) Done(result string) { s.end("", result) }

// Fail ends the step because of err, which the caller goes on to return.
func (s *Step) Fail(err error) { s.end("failed: ", err.Error()) }

func (s *Step) end(prefix, result string) {
	if s == nil {
		return
	}
	if s.bar != nil {
		_ = s.bar.Clear() // a terminal that has gone away is no reason to fail
	}
	if result != "" {
		result = ": " + prefix + result
	}
	fmt.Fprintf(s.r.w, "  %s%s (%s)\n", s.name, result, round(time.Since(s.began)))
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
