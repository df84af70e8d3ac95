package fake

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/enginetest"
)

const echoPort = 7

func newTestMachine() (*Machine, cube.ImageID) {
	m := NewMachine(64 << 30)
	m.Serve(echoPort, func(_ Guest, c net.Conn) { io.Copy(c, bufio.NewReader(c)) })
	return m, m.AddTemplate([32]byte{1}, cube.DefaultLimits(), nil)
}

func TestTheFakeKeepsTheContract(t *testing.T) {
	m, image := newTestMachine()
	guest := func(id cube.SandboxID, f func(Guest)) error {
		g, err := m.Guest(id)
		if err == nil {
			f(g)
		}
		return err
	}
	hook := func(p Point, fail error) func(*testing.T, cube.ImageID) func() {
		return func(*testing.T, cube.ImageID) func() {
			m.Hook(p, func(context.Context) error { return fail })
			return func() { m.Hook(p, nil) }
		}
	}
	h := enginetest.Harness{
		Open:  func(context.Context) (cube.Engine, error) { return m.Open(), nil },
		Image: image,
		Boot:  cube.BootSpec{Rootfs: Rootfs, Limits: cube.DefaultLimits()},
		Put: func(_ context.Context, _ cube.Engine, id cube.SandboxID, k, v string) error {
			return guest(id, func(g Guest) { g.Put(k, v) })
		},
		Get: func(_ context.Context, _ cube.Engine, id cube.SandboxID, k string) (v string, err error) {
			err = guest(id, func(g Guest) { v = g.Get(k) })
			return v, err
		},
		Identity: func(_ context.Context, _ cube.Engine, id cube.SandboxID) (who cube.Identity, err error) {
			err = guest(id, func(g Guest) { who, _ = g.Identity() })
			return who, err
		},
		EchoPort: echoPort,
		Slow: func(t *testing.T, _ cube.Engine, _ cube.SandboxID) {
			// A save that has begun goes on when another verb has been refused.
			m.Hook(PointSave, func(ctx context.Context) error { return takes(ctx, 20*time.Millisecond) })
			t.Cleanup(func() { m.Hook(PointSave, nil) })
		},
		Crash: func(_ context.Context, _ cube.Engine, id cube.SandboxID) error {
			return m.Die(id, cube.DeathSignal, "killed by the test")
		},
		Images: func(context.Context) ([]cube.ImageID, error) {
			var ids []cube.ImageID
			for _, img := range m.Images() {
				ids = append(ids, img.ID)
			}
			return ids, nil
		},
		DeleteImage: func(_ context.Context, id cube.ImageID) error { return m.DeleteImage(id) },
		PoolMembers: func(context.Context) (int, error) { return m.PoolMembers(), nil },
		Faults: map[enginetest.Fault]func(*testing.T, cube.ImageID) func(){
			enginetest.SaveFails:  hook(PointPublish, cube.ErrNoSpace),
			enginetest.StartFails: hook(PointStart, cube.ErrUnavailable),
			enginetest.OutOfMemory: func(*testing.T, cube.ImageID) func() {
				m.SetMemory(overhead)
				return func() { m.SetMemory(64 << 30) }
			},
			enginetest.Altered:      changed(m.Corrupt),
			enginetest.OtherVersion: changed(m.Age),
		},
		Begin: func(*testing.T) func() error { return func() error { return m.idle() } },
		Unsupported: map[string]string{
			string(enginetest.Truncated): Unsupported()["page loading"],
			string(enginetest.Shortened): Unsupported()["page loading"],
			string(enginetest.ReadError): Unsupported()["page loading"],
		},
	}
	enginetest.Run(t, h)
}

// takes makes a verb last.
func takes(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
	return nil
}

// changed is a fault that stays: the image is deleted by the suite.
func changed(f func(cube.ImageID) error) func(*testing.T, cube.ImageID) func() {
	return func(t *testing.T, id cube.ImageID) func() {
		if err := f(id); err != nil {
			t.Fatal(err)
		}
		return func() {}
	}
}

// idle says what the machine holds that it should not when nothing runs.
func (m *Machine) idle() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if free := m.free(); free != m.memory || len(m.sandboxes) > 0 || len(m.starting) > 0 || m.second != 0 {
		return fmt.Errorf("%d sandboxes, %d starting, %d bytes beside, %d of %d bytes free", len(m.sandboxes), len(m.starting), m.second, free, m.memory)
	}
	return nil
}

func TestACancelledVerbUndoesWhatItDidAtEveryPoint(t *testing.T) {
	verbs := map[string]func(ctx context.Context, e *Engine, id cube.SandboxID, img cube.ImageID) error{
		"create": func(ctx context.Context, e *Engine, _ cube.SandboxID, img cube.ImageID) error {
			_, err := e.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: img})
			return err
		},
		"save": func(ctx context.Context, e *Engine, id cube.SandboxID, _ cube.ImageID) error {
			_, err := e.Save(ctx, id, cube.NewSnapshotID())
			return err
		},
		"pause": func(ctx context.Context, e *Engine, id cube.SandboxID, _ cube.ImageID) error {
			_, err := e.Pause(ctx, id, cube.NewSnapshotID(), cube.Pausing{})
			return err
		},
		"rollback": func(ctx context.Context, e *Engine, id cube.SandboxID, img cube.ImageID) error {
			_, err := e.Rollback(ctx, id, img)
			return err
		},
		"clone": func(ctx context.Context, e *Engine, id cube.SandboxID, _ cube.ImageID) error {
			_, err := e.Clone(ctx, id, []cube.CreateSpec{{ID: cube.NewSandboxID()}}, 0)
			return err
		},
	}
	points := map[string][]Point{
		"create": {PointStart, PointLoad}, "save": {PointSave, PointPublish}, "pause": {PointSave, PointPublish},
		"rollback": {PointStart, PointLoad, PointSwitch}, "clone": {PointSave, PointPublish, PointStart, PointLoad},
	}
	for name, do := range verbs {
		for _, p := range points[name] {
			t.Run(name+" at "+string(p), func(t *testing.T) {
				m, img := newTestMachine()
				e := m.Open()
				defer e.Close()
				s, err := e.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: img})
				if err != nil {
					t.Fatal(err)
				}
				free, images := m.memory-charge(s.Limits), len(m.Images())
				ctx, cancel := context.WithCancel(t.Context())
				m.Hook(p, func(context.Context) error { cancel(); return nil })
				if err := do(ctx, e, s.ID, img); !errors.Is(err, context.Canceled) {
					t.Errorf("got error %v, want canceled", err)
				}
				all, _ := e.Sandboxes(t.Context())
				if len(all) != 1 || all[0].State != cube.StateRunning || all[0].Generation != 1 {
					t.Errorf("got sandboxes %+v, want the one from before, running in generation 1", all)
				}
				if got := len(m.Images()); got != images {
					t.Errorf("got %d images, want %d", got, images)
				}
				m.mu.Lock()
				defer m.mu.Unlock()
				if got := m.free(); got != free {
					t.Errorf("got %d bytes free, want %d", got, free)
				}
			})
		}
	}
}

func TestAReaderThatFallsBehindIsClosed(t *testing.T) {
	m, _ := newTestMachine()
	e := m.Open()
	defer e.Close()
	slow, fast := e.Events(t.Context()), e.Events(t.Context())
	for i := range eventBacklog + 1 {
		m.Emit(cube.Event{Kind: cube.EventOOM, Detail: fmt.Sprint(i)})
		if got := <-fast; got.Detail != fmt.Sprint(i) {
			t.Fatalf("the reader that reads: got event %s, want %d", got.Detail, i)
		}
	}
	n := 0
	for range slow {
		n++
	}
	if n != eventBacklog {
		t.Errorf("got %d events before the channel was closed, want %d", n, eventBacklog)
	}
}
