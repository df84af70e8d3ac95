package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// guest is a sandbox of the service below: files, and the program when it runs.
type guest struct {
	files map[string]string
	state State
	alive bool
}

func (g guest) clone() *guest {
	g.files = maps.Clone(g.files)
	return &g
}

// service is a Target in memory that knows the commands of the probe. break*
// make it a bad one.
type service struct {
	sandboxes, snapshots map[string]*guest
	n                    int

	restarts      bool // restores start the program anew
	keepsFiles    bool // rollback leaves files alone
	keepsSnapshot bool // snapshots cannot be deleted
	rollbackError error
}

func newService() *service {
	return &service{sandboxes: map[string]*guest{"other": {}}, snapshots: map[string]*guest{"old": {}}}
}

func (s *service) id(prefix string) string { s.n++; return fmt.Sprint(prefix, s.n) }

func (s *service) restore(g *guest) *guest {
	g = g.clone()
	if s.restarts {
		g.state.Identity = s.id("again")
	}
	return g
}

func (s *service) Create(_ context.Context, snapshot string) (string, error) {
	id := s.id("sb")
	s.sandboxes[id] = &guest{files: map[string]string{}}
	if snapshot != "" {
		s.sandboxes[id] = s.restore(s.snapshots[snapshot])
	}
	return id, nil
}

func (s *service) Snapshot(_ context.Context, sandbox string) (string, error) {
	id := s.id("snap")
	s.snapshots[id] = s.sandboxes[sandbox].clone()
	return id, nil
}

func (s *service) Rollback(_ context.Context, sandbox, snapshot string) error {
	if s.rollbackError != nil {
		return s.rollbackError
	}
	old := s.sandboxes[sandbox]
	s.sandboxes[sandbox] = s.restore(s.snapshots[snapshot])
	if s.keepsFiles {
		s.sandboxes[sandbox].files = old.files
	}
	return nil
}

func (s *service) Kill(_ context.Context, sandbox string) error {
	delete(s.sandboxes, sandbox)
	return nil
}

func (s *service) DeleteSnapshot(_ context.Context, snapshot string) error {
	if s.keepsSnapshot {
		return errors.New("in use")
	}
	delete(s.snapshots, snapshot)
	return nil
}

func (s *service) Sandboxes(context.Context) ([]string, error) {
	return slices.Collect(maps.Keys(s.sandboxes)), nil
}

func (s *service) Snapshots(context.Context) ([]string, error) {
	return slices.Collect(maps.Keys(s.snapshots)), nil
}

func (s *service) WriteFile(_ context.Context, sandbox, path string, content []byte) error {
	s.sandboxes[sandbox].files[path] = string(content)
	return nil
}

func (s *service) ReadFile(_ context.Context, sandbox, path string) ([]byte, error) {
	return []byte(s.sandboxes[sandbox].files[path]), nil
}

func (s *service) Run(_ context.Context, sandbox string, argv ...string) (Output, error) {
	g := s.sandboxes[sandbox]
	switch argv[0] {
	case "/usr/bin/python3":
		g.alive, g.state = true, State{Identity: s.id("id"), PID: 33}
	case "/bin/kill":
		g.alive = false
	case "/usr/bin/curl":
		if !g.alive {
			return Output{Exit: couldNotConnect}, nil
		}
		url := argv[len(argv)-1]
		switch what := url[strings.LastIndex(url, "/")+1:]; what {
		case "hold", "run":
			g.state.Held = what == "hold"
		case "state":
		default:
			fmt.Sscanf(what, "wait?above=%d", &g.state.Counter)
			g.state.Counter++
		}
		b, err := json.Marshal(g.state)
		return Output{Stdout: b}, err
	}
	return Output{}, nil
}

func TestAServiceThatKeepsMemoryPasses(t *testing.T) {
	s := newService()
	var seen []int
	r := Run(t.Context(), s, Options{Rounds: 3, Environment: "test", Each: func(r Round) { seen = append(seen, r.Round) }})
	if r.Result != Pass || len(r.Rounds) != 3 || !slices.Equal(seen, []int{1, 2, 3}) || r.SandboxesRemaining != 0 || r.SnapshotsRemaining != 0 {
		t.Errorf("got %+v, want three rounds that pass and nothing left", r)
	}
	if len(s.sandboxes) != 1 || len(s.snapshots) != 1 {
		t.Errorf("got sandboxes %v and snapshots %v, want those from before alone", s.sandboxes, s.snapshots)
	}
	if b, _ := json.Marshal(r); strings.Contains(string(b), `"id2"`) {
		t.Errorf("the report has the identity itself: %s", b)
	}
}

func TestEachFailureIsFoundAndKept(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(*service)
		failed []string // checks that are reached and do not hold
		err    string
		left   int
	}{
		"the program is started anew": {func(s *service) { s.restarts = true }, []string{CheckRollbackState, CheckRollbackGrew, CheckCopyState, CheckCopyGrew}, "", 0},
		"files do not go back":        {func(s *service) { s.keepsFiles = true }, []string{CheckRollbackFile}, "", 0},
		"rollback fails":              {func(s *service) { s.rollbackError = errors.New("no way back") }, nil, "no way back", 0},
		"snapshots stay":              {func(s *service) { s.keepsSnapshot = true }, nil, "in use", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService()
			c.spoil(s)
			r := Run(t.Context(), s, Options{Rounds: 1})
			if r.Result != Fail || len(r.Rounds) != 1 {
				t.Fatalf("got %s after %d rounds, want FAIL after 1", r.Result, len(r.Rounds))
			}
			var failed []string
			for _, check := range checks {
				if held, reached := r.Rounds[0].Checks[check]; reached && !held {
					failed = append(failed, check)
				}
			}
			if !slices.Equal(failed, c.failed) || !strings.Contains(r.Rounds[0].Error, c.err) {
				t.Errorf("got failed checks %v and error %q, want %v and %q", failed, r.Rounds[0].Error, c.failed, c.err)
			}
			if r.SnapshotsRemaining != c.left || r.SandboxesRemaining != 0 {
				t.Errorf("got %d sandboxes and %d snapshots left, want 0 and %d", r.SandboxesRemaining, r.SnapshotsRemaining, c.left)
			}
		})
	}
}

func TestACancelledProbeCleansUpAndFails(t *testing.T) {
	s := newService()
	ctx, cancel := context.WithCancel(t.Context())
	r := Run(ctx, s, Options{Rounds: 5, Each: func(Round) { cancel() }})
	if r.Result != Fail || r.Error == "" || len(r.Rounds) != 1 || len(s.sandboxes) != 1 {
		t.Errorf("got %s, error %q, %d rounds, sandboxes %v", r.Result, r.Error, len(r.Rounds), s.sandboxes)
	}
}
