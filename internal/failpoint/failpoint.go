// Package failpoint has the named places in the real code at which a test can make a
// process fail: between any two steps of a verb. CUBE_FAILPOINTS says what is to
// happen where; without it a place costs one atomic load.
//
// The form is NAME=ACTION[@N], several with semicolons between. The actions:
//
//	error(TEXT)   Hit returns an error with the text
//	panic         the process panics
//	kill          the process is ended by SIGKILL, as by kill -9
//	sleep(100ms)  Hit returns after that time
//
// @N: on the N-th pass alone, counted from 1; without it, on every pass.
// CUBE_FAILPOINT_TRACE names a file to which each pass appends a line with the name,
// so that a test learns which places a verb passes.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Env and TraceEnv are the variables that mains read, by FromEnv.
const (
	Env      = "CUBE_FAILPOINTS"
	TraceEnv = "CUBE_FAILPOINT_TRACE"
)

// ErrInjected is what every error of an error action wraps.
var ErrInjected = errors.New("failpoint")

// Point is one place. Make it with New, in a package variable.
type Point struct {
	name   string
	passes atomic.Int64
	acts   atomic.Pointer[action]
}

var (
	mu     sync.Mutex // guards the following
	points = map[string]*Point{}
	trace  *os.File

	active atomic.Bool // something is armed, or traced
)

// New names a place: "package/verb/what-has-just-happened". A name that is taken
// panics.
func New(name string) *Point {
	mu.Lock()
	defer mu.Unlock()
	if points[name] != nil {
		panic("failpoint " + name + " is there twice")
	}
	p := &Point{name: name}
	points[name] = p
	return p
}

// Names returns all places of this program, sorted.
func Names() []string {
	mu.Lock()
	defer mu.Unlock()
	var names []string
	for n := range points {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Passes is how often a place was passed since something was last armed.
func Passes(name string) int64 {
	mu.Lock()
	defer mu.Unlock()
	if p := points[name]; p != nil {
		return p.passes.Load()
	}
	return 0
}

// Hit passes the place. It returns nil but for an error action.
func (p *Point) Hit() error {
	if !active.Load() {
		return nil
	}
	return p.hit()
}

func (p *Point) hit() error {
	mu.Lock()
	if trace != nil {
		fmt.Fprintln(trace, p.name)
	}
	mu.Unlock()
	n := p.passes.Add(1)
	a := p.acts.Load()
	if a == nil || a.pass != 0 && a.pass != n {
		return nil
	}
	return a.do(p.name)
}

// action is what happens at a place.
type action struct {
	kind string
	text string
	wait time.Duration
	pass int64 // 0: every one
}

func (a *action) do(name string) error {
	switch a.kind {
	case "error":
		return fmt.Errorf("%w %s: %s", ErrInjected, name, a.text)
	case "panic":
		panic("failpoint " + name)
	case "kill":
		syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {} // it takes a moment
	default:
		<-time.After(a.wait)
		return nil
	}
}

// FromEnv arms what the environment says. A mistake in it is an error.
func FromEnv() error {
	if path := os.Getenv(TraceEnv); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("%s: %w", TraceEnv, err)
		}
		mu.Lock()
		trace = f
		mu.Unlock()
		active.Store(true)
	}
	if err := Arm(os.Getenv(Env)); err != nil {
		return fmt.Errorf("%s: %w", Env, err)
	}
	return nil
}

// Arm sets what happens, in the form of the package's comment. What was armed before
// is disarmed. Names of other programs' places are let be: several read one variable.
func Arm(spec string) error {
	armed := map[string]*action{}
	for part := range strings.SplitSeq(spec, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, what, ok := strings.Cut(part, "=")
		if !ok {
			return fmt.Errorf("%q: want NAME=ACTION[@N]", part)
		}
		a, err := parse(what)
		if err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
		armed[name] = a
	}
	mu.Lock()
	defer mu.Unlock()
	for name, p := range points {
		p.passes.Store(0)
		p.acts.Store(armed[name])
	}
	active.Store(len(armed) > 0 || trace != nil)
	return nil
}

// parse reads ACTION[@N]. The text of an error may have any character but a
// semicolon.
func parse(s string) (*action, error) {
	a := &action{}
	what := s
	if at := strings.LastIndexByte(s, '@'); at > strings.LastIndexByte(s, ')') {
		var err error
		if a.pass, err = strconv.ParseInt(s[at+1:], 10, 64); err != nil || a.pass < 1 {
			return nil, fmt.Errorf("pass %q: want a number from 1", s[at+1:])
		}
		what = s[:at]
	}
	kind, arg, open := strings.Cut(what, "(")
	arg, closed := strings.CutSuffix(arg, ")")
	a.kind = kind
	switch {
	case (kind == "panic" || kind == "kill") && !open && !closed:
		return a, nil
	case kind == "error" && open && closed:
		a.text = arg
		return a, nil
	case kind == "sleep" && open && closed:
		var err error
		a.wait, err = time.ParseDuration(arg)
		return a, err
	}
	return nil, fmt.Errorf("action %q: want error(TEXT), panic, kill or sleep(DURATION)", what)
}
