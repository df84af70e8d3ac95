package enginetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	cube "cubesandbox"
)

// X is what a promise is shown with.
type X struct {
	*testing.T
	h       Harness
	e       cube.Engine
	ctx     context.Context
	timeout time.Duration
	conns   []net.Conn // to close when the promise has been shown
}

func (x *X) noError(err error, what string) {
	x.Helper()
	if err != nil {
		x.Fatalf("%s: %v", what, err)
	}
}

func (x *X) wantError(err, want error, what string) {
	x.Helper()
	if !errors.Is(err, want) {
		x.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// create makes a sandbox from the harness's image.
func (x *X) create() cube.Sandbox {
	x.Helper()
	s, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: x.h.Image})
	x.noError(err, "create")
	return s
}

func (x *X) save(id cube.SandboxID) cube.ImageID {
	x.Helper()
	img := cube.NewSnapshotID()
	_, err := x.e.Save(x.ctx, id, img)
	x.noError(err, "save")
	return img
}

func (x *X) put(id cube.SandboxID, key, value string) {
	x.Helper()
	x.noError(x.h.Put(x.ctx, x.e, id, key, value), "put "+key)
}

// holds checks a value inside; the answer must come within a second.
func (x *X) holds(id cube.SandboxID, key, want string) {
	x.Helper()
	ctx, cancel := context.WithTimeout(x.ctx, time.Second)
	defer cancel()
	got, err := x.h.Get(ctx, x.e, id, key)
	if err != nil {
		x.Errorf("get %s from %s within 1 s: %v", key, id, err)
	} else if got != want {
		x.Errorf("%s in %s: got %q, want %q", key, id, got, want)
	}
}

// runs checks that a sandbox is running in a generation.
func (x *X) runs(id cube.SandboxID, gen cube.Generation) {
	x.Helper()
	s, err := x.e.Sandbox(x.ctx, id)
	if err != nil {
		x.Errorf("sandbox %s: %v", id, err)
	} else if s.State != cube.StateRunning || s.Generation != gen || s.Death != nil {
		x.Errorf("sandbox %s: got %s in generation %d (death %v), want running in generation %d", id, s.State, s.Generation, s.Death, gen)
	}
}

// gone checks that the engine does not know a sandbox.
func (x *X) gone(id cube.SandboxID) {
	x.Helper()
	if _, err := x.e.Sandbox(x.ctx, id); !errors.Is(err, cube.ErrNotFound) {
		x.Errorf("sandbox %s: got error %v, want not found", id, err)
	}
}

func (x *X) images() []cube.ImageID {
	x.Helper()
	ids, err := x.h.Images(x.ctx)
	x.noError(err, "list images")
	slices.Sort(ids)
	return ids
}

// published checks whether an image is there.
func (x *X) published(id cube.ImageID, want bool) {
	x.Helper()
	if got := slices.Contains(x.images(), id); got != want {
		x.Errorf("image %s is published: got %v, want %v", id, got, want)
	}
}

// line is a connection to the echo server of a sandbox.
type line struct {
	x *X
	net.Conn
	r *bufio.Reader
	n int
}

// connect opens one and uses it once.
func (x *X) connect(id cube.SandboxID) *line {
	x.Helper()
	c, err := x.e.Dial(x.ctx, id, 0, x.h.EchoPort)
	x.noError(err, "dial")
	l := &line{x: x, Conn: c, r: bufio.NewReader(c)}
	x.conns = append(x.conns, c)
	l.works()
	return l
}

func (l *line) say() error {
	l.n++
	want := fmt.Sprintf("line %d\n", l.n)
	if err := l.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(l, want); err != nil {
		return err
	}
	got, err := l.r.ReadString('\n')
	if err == nil && got != want {
		err = fmt.Errorf("got %q back, want %q", got, want)
	}
	return err
}

// works checks that the connection carries data both ways.
func (l *line) works() {
	l.x.Helper()
	if err := l.say(); err != nil {
		l.x.Errorf("open connection: %v", err)
	}
}

// isReset checks that the connection ended, and not in an orderly way.
func (l *line) isReset() {
	l.x.Helper()
	err := l.SetDeadline(time.Now().Add(time.Second))
	if err == nil { // else it has ended already
		_, err = l.r.ReadString('\n')
	}
	var late net.Error
	if err == nil || errors.Is(err, io.EOF) || errors.As(err, &late) && late.Timeout() {
		l.x.Errorf("connection of a life that is over: got %v, want a reset", err)
	}
}

// fault brings one about; ok is false when the engine has named it as unsupported.
func (x *X) fault(f Fault, image cube.ImageID) (undo func(), ok bool) {
	x.Helper()
	if reason, no := x.h.Unsupported[string(f)]; no {
		x.Logf("not shown with %q: %s", f, reason)
		return nil, false
	}
	do := x.h.Faults[f]
	if do == nil {
		x.Fatalf("the harness has no fault %q and does not name it as unsupported", f)
	}
	return do(x.T, image), true
}

// eachImageFault makes a fresh image for each fault, with the value "saved", and
// calls f while it is broken.
func (x *X) eachImageFault(f func(id cube.SandboxID, bad cube.ImageID, want error)) {
	x.Helper()
	for _, fault := range sortedFaults() {
		s := x.create()
		x.put(s.ID, "k", "saved")
		img := x.save(s.ID)
		undo, ok := x.fault(fault, img)
		if !ok {
			continue
		}
		x.Logf("with %s", fault)
		f(s.ID, img, imageFaults[fault])
		undo()
	}
}
