package sqlite

import (
	"context"
	"database/sql"
	"io/fs"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	cube "cubesandbox"
)

// records1 is what a program of version 1 had written.
const records1 = `INSERT INTO sandboxes VALUES
('0123456789abcdef0123456789abcdef', 'ended', 3, 'tpl-1', 'p', 'snap-1', 1795849200000000001, 1795849201000000002, 1795849202000000003,
'{"ID":"0123456789abcdef0123456789abcdef","Generation":3,"Phase":"ended","Template":"tpl-1","Alias":"base","Parent":"p","Limits":{"memoryMiB":512,"cpus":2,"diskMiB":10240,"pids":1024},"Identity":{"hostname":"h","env":{"A":"ü\u0000\n"},"accessToken":"t","user":"u"},"TrafficToken":"tt","Metadata":{"k":"<"},"Clock":"idle","Timeout":-1,"EndAt":"2026-11-28T07:00:02.000000003Z","OnTimeout":"pause","AutoResume":true,"AllowInternet":false,"Network":{"a":[1]},"MCP":{},"Image":"snap-1","StartedAt":"2026-11-28T07:00:00.000000001Z","ChangedAt":"2026-11-28T07:00:01.000000002Z","End":{"reason":"oom","detail":"d","at":"2026-11-28T07:00:02Z"}}'),
('1123456789abcdef0123456789abcdef', 'creating', 0, '', '', '', 1895849200000000000, 0, 0,
'{"ID":"1123456789abcdef0123456789abcdef","Generation":0,"Phase":"creating","Template":"","Alias":"","Parent":"","Limits":{"memoryMiB":0,"cpus":0,"diskMiB":0,"pids":0},"Identity":{},"TrafficToken":"","Metadata":null,"Clock":"","Timeout":0,"EndAt":"0001-01-01T00:00:00Z","OnTimeout":"","AutoResume":false,"AllowInternet":null,"Image":"","StartedAt":"2030-01-28T16:46:40Z","ChangedAt":"0001-01-01T00:00:00Z","End":null}');
INSERT INTO snapshots VALUES ('snap-2', 'n', 's', 'ready', 1795849200000000001,
'{"ID":"snap-2","Name":"n","Source":"s","Template":"tpl-1","State":"ready","CreatedAt":"2026-11-28T07:00:00.000000001Z","Limits":{"memoryMiB":512,"cpus":2,"diskMiB":10240,"pids":1024},"Env":{"A":"1"},"Bytes":1099511627776}')`

func TestRecordsOfVersion1AreThereAfterTheMigration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := sql.Open("sqlite", "file:"+path+pragmas)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, sub)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(records1); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	no := false
	at := time.Unix(1795849200, 1).UTC()
	second := func(n int) time.Time { return at.Add(time.Duration(n) * (time.Second + 1)) }
	want := []cube.Record{{
		ID: "0123456789abcdef0123456789abcdef", Generation: 3, Phase: cube.PhaseEnded, Template: "tpl-1", Alias: "base", Parent: "p",
		Limits: cube.DefaultLimits(), Identity: cube.Identity{Hostname: "h", Env: map[string]string{"A": "ü\x00\n"}, AccessToken: "t", User: "u"},
		TrafficToken: "tt", Metadata: map[string]string{"k": "<"}, Clock: cube.ClockIdle, Timeout: cube.NeverTimeout, EndAt: second(2),
		OnTimeout: cube.OnTimeoutPause, AutoResume: true, AllowInternet: &no, Network: []byte(`{"a":[1]}`), MCP: []byte(`{}`), Image: "snap-1",
		StartedAt: at, ChangedAt: second(1), End: &cube.Death{Reason: cube.DeathOOM, Detail: "d", At: second(2).Truncate(time.Second)},
	}, {ID: "1123456789abcdef0123456789abcdef", Phase: cube.PhaseCreating, StartedAt: time.Unix(1895849200, 0).UTC()}}
	s := open(t, path)
	if got, err := s.Sandboxes(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v (%v)\nwant %+v", got, err, want)
	}
	snap := cube.Snapshot{ID: "snap-2", Name: "n", Source: "s", Template: "tpl-1", State: cube.SnapshotReady, CreatedAt: at,
		Limits: cube.DefaultLimits(), Env: map[string]string{"A": "1"}, Bytes: 1 << 40}
	if got, err := s.Snapshots(t.Context()); err != nil || !reflect.DeepEqual(got, []cube.Snapshot{snap}) {
		t.Errorf("got  %+v (%v)\nwant %+v", got, err, snap)
	}
}
