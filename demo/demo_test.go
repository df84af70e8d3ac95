package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	cube "cubesandbox"
	"cubesandbox/fake"
	"cubesandbox/probe"
)

// inside is the probe's program, kept in the state of a fake guest.
type inside struct {
	m *fake.Machine
	// restarts has a rollback look as if the program had been started anew.
	restarts bool
}

func (in inside) Run(_ context.Context, id cube.SandboxID, argv ...string) (probe.Output, error) {
	g, err := in.m.Guest(id)
	if err != nil {
		return probe.Output{}, err
	}
	_, gen := g.Identity()
	var s probe.State
	json.Unmarshal([]byte(g.Get("program")), &s)
	switch argv[0] {
	case "/usr/bin/python3":
		s = probe.State{PID: 33, Identity: "0123456789abcdef"}
	case "/bin/kill":
		g.Put("program", "")
		return probe.Output{}, nil
	case "/usr/bin/curl":
		if s.PID == 0 {
			return probe.Output{Exit: 7}, nil
		}
		switch what := argv[len(argv)-1][strings.LastIndex(argv[len(argv)-1], "/")+1:]; what {
		case "hold", "run":
			s.Held = what == "hold"
		case "state":
		default:
			fmt.Sscanf(what, "wait?above=%d", &s.Counter)
			s.Counter++
		}
	}
	b, err := json.Marshal(s)
	g.Put("program", string(b))
	if in.restarts && gen > 1 {
		b = []byte(`{"pid": 34}`)
	}
	return probe.Output{Stdout: b}, err
}

func (in inside) WriteFile(_ context.Context, id cube.SandboxID, path string, b []byte) error {
	g, err := in.m.Guest(id)
	if err == nil {
		g.Put(path, string(b))
	}
	return err
}

func (in inside) ReadFile(_ context.Context, id cube.SandboxID, path string) ([]byte, error) {
	g, err := in.m.Guest(id)
	if err != nil {
		return nil, err
	}
	return []byte(g.Get(path)), nil
}

type images struct{ *fake.Machine }

func (i images) Images() ([]cube.Image, error) { return i.Machine.Images(), nil }
func (i images) Delete(id cube.ImageID) error  { return i.DeleteImage(id) }
func left(m *fake.Machine) (n int)             { return len(m.Images()) - 1 }

func newService(t *testing.T, restarts bool) (probe.EngineTarget, *fake.Machine) {
	m := fake.NewMachine(64 << 30)
	base := m.AddTemplate([32]byte{1}, cube.DefaultLimits(), nil)
	e := m.Open()
	t.Cleanup(func() { e.Close() })
	return probe.EngineTarget{Engine: e, Images: images{m}, Guest: inside{m, restarts}, Base: base}, m
}

func TestTheDemoShowsEveryStepAndLeavesNothing(t *testing.T) {
	s, m := newService(t, false)
	told := 0
	r, err := Run(t.Context(), s, 10, func(Step) { told++ })
	if err != nil || !r.OK {
		t.Fatalf("got %+v, %v", r, err)
	}
	if told != len(r.Steps) || told != 5+1+10+1 {
		t.Errorf("got %d steps told and %d in the report, want 17", told, len(r.Steps))
	}
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "counts on by itself"); got != 10 {
		t.Errorf("got %d clones in the table, want 10:\n%s", got, out.String())
	}
	all, _ := s.Sandboxes(t.Context())
	if len(all) != 0 || left(m) != 0 {
		t.Errorf("got sandboxes %v and %d snapshots left", all, left(m))
	}
}

func TestTheDemoFailsWhenAnotherProcessComesBack(t *testing.T) {
	s, m := newService(t, true)
	r, err := Run(t.Context(), s, 2, nil)
	if err == nil || r.OK || !strings.Contains(err.Error(), "after rollback") {
		t.Errorf("got %v, OK %t; want that the state after rollback is another", err, r.OK)
	}
	if all, _ := s.Sandboxes(t.Context()); len(all) != 0 || left(m) != 0 {
		t.Errorf("got sandboxes %v and %d snapshots left", all, left(m))
	}
}

func TestTheDemoFailsWhenCloningDoes(t *testing.T) {
	s, m := newService(t, false)
	m.Hook(fake.PointStart, func(context.Context) error {
		if len(m.Images()) > 1 { // the first create has been
			return errors.New("no more")
		}
		return nil
	})
	if _, err := Run(t.Context(), s, 2, nil); err == nil {
		t.Error("got no error")
	}
	if left(m) != 0 {
		t.Errorf("got %d snapshots left", left(m))
	}
}

func TestTheProbePassesOnAnEngineThroughItsTarget(t *testing.T) {
	s, _ := newService(t, false)
	r := probe.Run(t.Context(), s, probe.Options{Rounds: 2})
	if r.Result != probe.Pass {
		b, _ := json.MarshalIndent(r, "", " ")
		t.Errorf("got %s", b)
	}
}
