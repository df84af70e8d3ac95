package sqlite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
)

// childEnv makes the test binary write records until it is killed.
const childEnv = "CUBE_SQLITE_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		child(path)
	}
	os.Exit(m.Run())
}

func child(path string) {
	s, err := Open(path)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for {
		r := full1(cube.NewSandboxID())
		if err := s.PutSandboxes(context.Background(), r); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(r.ID)
	}
}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// full1 is a record with something in every field.
func full1(id cube.SandboxID) cube.Record {
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
	}
}

func TestWhatIsPutIsGotBackEqual(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd ?#%name.db")
	s := open(t, path)
	ctx := t.Context()
	want := full1(cube.NewSandboxID())
	for i := range reflect.ValueOf(want).NumField() {
		if reflect.ValueOf(want).Field(i).IsZero() {
			t.Fatalf("the test leaves %s empty", reflect.TypeOf(want).Field(i).Name)
		}
	}
	empty := cube.Record{ID: cube.NewSandboxID(), Phase: cube.PhaseCreating}
	snap := cube.Snapshot{ID: cube.NewSnapshotID(), Name: "n", Source: want.ID, Template: want.Template, State: cube.SnapshotReady,
		CreatedAt: want.StartedAt, Limits: want.Limits, Env: map[string]string{"A": "1"}, Bytes: 1 << 40}
	if err := errors.Join(s.PutSandboxes(ctx, want, empty), s.PutSnapshot(ctx, snap)); err != nil {
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
	if got, err := s.Snapshots(ctx); err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], snap) {
		t.Errorf("got %+v (%v), want %+v", got, err, snap)
	}
}

func TestListsAreOrderedAndDeletesIdempotent(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	ctx := t.Context()
	now := time.Now()
	var ids []cube.SandboxID
	for i := range 5 {
		r := full1(cube.NewSandboxID())
		r.StartedAt = now.Add(-time.Duration(i) * time.Second)
		ids = append([]cube.SandboxID{r.ID}, ids...)
		if err := s.PutSandboxes(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := errors.Join(s.DeleteSandbox(ctx, ids[0]), s.DeleteSnapshot(ctx, cube.NewSnapshotID())); err != nil {
			t.Error(err)
		}
	}
	all, err := s.Sandboxes(ctx)
	if err != nil || len(all) != 4 {
		t.Fatalf("got %d (%v), want 4", len(all), err)
	}
	for i, r := range all {
		if r.ID != ids[i+1] {
			t.Errorf("at %d: got %s, want %s", i, r.ID, ids[i+1])
		}
	}
	if _, err := s.Sandbox(ctx, ids[0]); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("got %v, want not found", err)
	}
}

func TestSeveralAreStoredTogetherOrNotAtAll(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	good, bad := full1(cube.NewSandboxID()), full1(cube.NewSandboxID())
	bad.Network = json.RawMessage(`{`)
	if err := s.PutSandboxes(t.Context(), good, bad); err == nil {
		t.Error("a record that cannot be written is no error")
	}
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("got %d (%v), want none", len(all), err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.PutSandboxes(canceled, good, full1(cube.NewSandboxID())); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}

func TestManyWriteAtTheSameTime(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				if err := s.PutSandboxes(t.Context(), full1(cube.NewSandboxID()), full1(cube.NewSandboxID())); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != 400 {
		t.Errorf("got %d (%v), want 400", len(all), err)
	}
}

func TestOneProcessHasItOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	open(t, path)
	if _, err := Open(path); !errors.Is(err, cube.ErrConflict) || !strings.Contains(err.Error(), "another server") {
		t.Errorf("got %v", err)
	}
}

func TestTheFilesAreTheOwnersAlone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "db"))
	if err := s.PutSandboxes(t.Context(), full1(cube.NewSandboxID())); err != nil {
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

func TestADatabaseOfANewerVersionAndACorruptOneAreRefused(t *testing.T) {
	dir := t.TempDir()
	newer := filepath.Join(dir, "newer")
	s, err := Open(newer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := Open(newer); !errors.Is(err, cube.ErrIncompatible) || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("newer: got %v", err)
	}
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte(strings.Repeat("this is no database", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(broken); !errors.Is(err, cube.ErrCorrupt) || !strings.Contains(err.Error(), broken) {
		t.Errorf("corrupt: got %v", err)
	}
}

func TestAKillLosesNothingThatWasAcknowledged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var acknowledged []cube.SandboxID
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if id, err := cube.ParseSandboxID(lines.Text()); err == nil {
			acknowledged = append(acknowledged, id)
		}
		if len(acknowledged) == 200 {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	if len(acknowledged) < 200 {
		t.Fatalf("the child acknowledged %d and then ended", len(acknowledged))
	}
	s := open(t, path)
	for _, id := range acknowledged {
		if _, err := s.Sandbox(t.Context(), id); err != nil {
			t.Errorf("%s was acknowledged: %v", id, err)
		}
	}
}

func BenchmarkPutSandbox(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	r := full1(cube.NewSandboxID())
	for b.Loop() {
		if err := s.PutSandboxes(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
