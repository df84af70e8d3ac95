package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
)

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// write puts records together.
func write(s *Store, rs ...cube.Record) error {
	return s.Apply(context.Background(), cube.Batch{Sandboxes: rs})
}

// complete is a record with something in every field.
func complete(id cube.SandboxID) cube.Record {
	yes := true
	now := time.Now().Round(0).UTC()
	return cube.Record{
		ID: id, Generation: 3, Phase: cube.PhasePaused, Template: "tpl-0123456789abcdef01234567", Alias: "base",
		Parent: cube.NewSandboxID(), Limits: cube.DefaultLimits(),
		Identity:     cube.Identity{Hostname: "h", Env: map[string]string{"A": "ü\x00\n"}, AccessToken: "t", User: "u"},
		TrafficToken: "tt", Metadata: map[string]string{"k": "v"}, Clock: cube.ClockIdle, Timeout: cube.NeverTimeout,
		EndAt: now.Add(time.Nanosecond), OnTimeout: cube.OnTimeoutPause, AutoResume: true, AllowInternet: &yes,
		Network: json.RawMessage(`{"a":1}`), MCP: json.RawMessage(`{}`), Image: cube.NewSnapshotID(),
		StartedAt: now, ChangedAt: now.Add(time.Second), End: &cube.Death{Reason: cube.DeathOOM, Detail: "d", At: now},
		AutoRecover: true, FilesFallback: true, Restored: cube.RestoredFiles, Recoverable: true, RecoveredAt: now.Add(time.Hour),
	}
}

func TestWhatIsPutIsGotBackEqual(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd ?#%name.db")
	s := open(t, path)
	ctx := t.Context()
	want := complete(cube.NewSandboxID())
	empty := cube.Record{ID: cube.NewSandboxID(), Phase: cube.PhaseCreating}
	b := cube.Batch{
		Sandboxes: []cube.Record{want, empty},
		Snapshots: []cube.Snapshot{{ID: cube.NewSnapshotID(), Name: "n", Source: want.ID, Template: want.Template, State: cube.SnapshotReady,
			CreatedAt: want.StartedAt, Limits: want.Limits, Env: map[string]string{"A": "1"}, Bytes: 1 << 40, Durable: true}},
		Plans: []cube.Plan{{ID: cube.NewPlanID(), Verb: cube.VerbClone, Sandbox: want.ID, Image: want.Image, Made: []cube.SandboxID{empty.ID, want.ID},
			Key: "ü\n'", Request: strings.Repeat("ab", 32), BeganAt: want.StartedAt}},
		Answers: []cube.Answer{{Key: "ü\n'", Request: strings.Repeat("ab", 32), Sandboxes: []cube.SandboxID{empty.ID}, Image: want.Image, At: want.StartedAt}},
	}
	for _, v := range []any{want, b.Snapshots[0], b.Plans[0], b.Answers[0]} {
		for i := range reflect.ValueOf(v).NumField() {
			// What is wrong with a sandbox is found out anew by each service.
			if name := reflect.TypeOf(v).Field(i).Name; reflect.ValueOf(v).Field(i).IsZero() && name != "Unhealthy" {
				t.Fatalf("the test leaves %s of %T empty", reflect.TypeOf(v).Field(i).Name, v)
			}
		}
	}
	if err := s.Apply(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	for _, w := range []cube.Record{want, empty} {
		if got, err := s.Sandbox(ctx, w.ID); err != nil || !reflect.DeepEqual(got, w) {
			t.Errorf("got  %+v (%v)\nwant %+v", got, err, w)
		}
	}
	snaps, err1 := s.Snapshots(ctx)
	plans, err2 := s.Plans(ctx)
	answers, err3 := s.Answers(ctx)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(snaps, b.Snapshots) || !reflect.DeepEqual(plans, b.Plans) || !reflect.DeepEqual(answers, b.Answers) {
		t.Errorf("got  %+v, %+v, %+v\nwant %+v, %+v, %+v", snaps, plans, answers, b.Snapshots, b.Plans, b.Answers)
	}
}

func TestSeveralAreStoredTogetherOrNotAtAll(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	old := complete(cube.NewSandboxID())
	if err := write(s, old); err != nil {
		t.Fatal(err)
	}
	var pages int
	if err := s.conn.QueryRowContext(t.Context(), `PRAGMA page_count`).Scan(&pages); err != nil {
		t.Fatal(err)
	}
	// The disk is full after 4 pages more: in the midst of what is put.
	if _, err := s.conn.ExecContext(t.Context(), fmt.Sprintf(`PRAGMA max_page_count = %d`, pages+4)); err != nil {
		t.Fatal(err)
	}
	var many []cube.Record
	for range 100 {
		many = append(many, complete(cube.NewSandboxID()))
	}
	if err := write(s, many...); !errors.Is(err, cube.ErrNoSpace) {
		t.Errorf("got %v, want no space", err)
	}
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("got %d (%v), want the one from before", len(all), err)
	}
	if err := write(s, many[0]); err != nil {
		t.Errorf("one that there is room for: %v", err)
	}
}

func TestOneProcessHasItOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	for range 2 {
		if _, err := Open(path); !errors.Is(err, cube.ErrConflict) || !strings.Contains(err.Error(), "another server") {
			t.Errorf("got %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

func TestTheFilesAreTheOwnersAlone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "db"))
	if err := write(s, complete(cube.NewSandboxID())); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "db"), 0o644); err != nil { // as a copy that was put back
		t.Fatal(err)
	}
	s = open(t, filepath.Join(dir, "db"))
	if err := write(s, complete(cube.NewSandboxID())); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 3 {
		t.Fatalf("%v (%v), want database, log and lock", entries, err)
	}
	for _, e := range entries {
		if i, err := e.Info(); err != nil || i.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v (%v)", e.Name(), i.Mode(), err)
		}
	}
}
