package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/fake"
)

// clock is a Meter that gains a millisecond each time it is read.
type clock struct{ reads atomic.Int64 }

func (c *clock) CPU() (time.Duration, error) {
	return time.Duration(c.reads.Add(1)) * time.Millisecond, nil
}

// quiet is a Shell in which every program succeeds.
type quiet struct{ err error }

func (q quiet) Run(context.Context, ...string) error            { return q.err }
func (q quiet) WriteFile(context.Context, string, []byte) error { return nil }
func (q quiet) Close()                                          {}

// serve is guest.py, which always stood still for 7 ms.
func serve(_ fake.Guest, c net.Conn) {
	if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n0.007")
	}
}

func config(t *testing.T) (Config, *fake.Machine) {
	m := fake.NewMachine(64 << 30)
	base := m.AddTemplate([32]byte{1}, cube.DefaultLimits(), nil)
	m.Serve(guestPort, serve)
	e := m.Open()
	t.Cleanup(func() { e.Close() })
	return Config{
		Engine: e, Template: base, Rootfs: fake.Rootfs, DeleteImage: m.DeleteImage, Meter: &clock{}, N: 0.1,
		Connect:   func(cube.SandboxID) Shell { return quiet{} },
		Evict:     func(cube.ImageID) error { return nil },
		Footprint: func(_ context.Context, ids ...cube.SandboxID) (int64, error) { return int64(len(ids)) * 20e6, nil },
	}, m
}

func TestEveryRowIsMeasuredAndNothingIsLeft(t *testing.T) {
	c, m := config(t)
	rows, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"create.pool_hit", "create.booted", "create.from_snapshot",
		"snapshot.wall.0", "snapshot.stopped.0", "snapshot.wall.64", "snapshot.stopped.64",
		"snapshot.wall.256", "snapshot.stopped.256", "snapshot.wall.files_256", "snapshot.stopped.files_256",
		"rollback", "pause", "resume", "clone.1", "clone.10", "clone.50", "exec.true", "exec.bash_login",
		"restore.ours.a", "restore.ours.b", "idle.overhead_mb",
		"share.restore.memory_8", "share.restore.memory_64", "share.restore.memory_256", "share.restore.memory_1024",
		"share.restore.files_256", "share.restore.files_1024", "share.clone.10.1024",
		"share.again.wall.1024", "share.again.stopped.1024", "share.again.written_mb.1024", "share.hundred.last_by_first",
		"share.first_write.256", "share.cold.256", "share.extra_mb.256",
	}
	for i, r := range rows {
		if i >= len(want) || r.Name != want[i] || r.N < 1 {
			t.Fatalf("row %d: got %+v, want %q", i, r, want[min(i, len(want)-1)])
		}
		if r.Name == "snapshot.stopped.64" && r.P50 != 7 {
			t.Errorf("%s: got %v ms, want the 7 ms that the guest says", r.Name, r.P50)
		}
		if r.Name == "share.extra_mb.256" && r.Value != 20 {
			t.Errorf("%s: got %v, want the 20 MB of each clone", r.Name, r.Value)
		}
	}
	if len(rows) != len(want) {
		t.Errorf("got %d rows, want %d", len(rows), len(want))
	}
	if all, _ := c.Engine.Sandboxes(t.Context()); len(all) != 0 || len(m.Images()) != 1 || m.PoolMembers() != 0 {
		t.Errorf("left: sandboxes %v, %d images, %d members of pools", all, len(m.Images())-1, m.PoolMembers())
	}
}

func TestOnlyTheRowsThatAreAskedForAreMeasured(t *testing.T) {
	c, _ := config(t)
	c.Only = []string{"rollback", "clone.1"}
	rows, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
	}
	if got := strings.Join(names, " "); got != "rollback clone.1 clone.10" {
		t.Errorf("got %q", got)
	}
}

func TestAFailureNamesItsRowAndLeavesNothing(t *testing.T) {
	c, m := config(t)
	c.Connect = func(cube.SandboxID) Shell { return quiet{errors.New("exit status 1")} }
	_, err := Run(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "create.pool_hit") {
		t.Errorf("got %v, want an error that names create.pool_hit", err)
	}
	if all, _ := c.Engine.Sandboxes(t.Context()); len(all) != 0 || m.PoolMembers() != 0 {
		t.Errorf("left: sandboxes %v, %d members of pools", all, m.PoolMembers())
	}
}

func TestPercentilesAreByNearestRank(t *testing.T) {
	var samples []sample
	for i := 100; i > 0; i-- {
		samples = append(samples, sample{wall: time.Duration(i) * time.Millisecond, cpu: 2 * time.Millisecond})
	}
	got := row("x", samples)
	if want := (Row{Name: "x", N: 100, P50: 50, P95: 95, P99: 99, CPU: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := row("x", samples[:1]); got.P50 != 100 || got.P99 != 100 {
		t.Errorf("of one sample: got %+v, want it in every percentile", got)
	}
}

func TestTheJSONFormHasTheNamesThatArePublished(t *testing.T) {
	r := Report{Commit: "abc", Rows: []Row{{Name: "rollback", N: 2, P50: 1.5, P95: 2, P99: 2, CPU: 3}, {Name: "idle.overhead_mb", N: 1, Value: 20}}}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"machine":{`, `"commit":"abc"`, `{"name":"rollback","n":2,"p50_ms":1.5,"p95_ms":2,"p99_ms":2,"cpu_ms":3}`,
		`{"name":"idle.overhead_mb","n":1,"value":20}`,
	} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("got %s, want it to contain %s", b, want)
		}
	}
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil || !strings.Contains(out.String(), "idle.overhead_mb") {
		t.Errorf("got table %q, %v", out.String(), err)
	}
}

func TestTheMeterSeesThisProcessWork(t *testing.T) {
	m := HostMeter{}
	before, err := m.CPU()
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
	}
	after, err := m.CPU()
	if err != nil || after-before < 5*time.Millisecond {
		t.Errorf("after 20 ms of work: got %v more, %v", after-before, err)
	}
}

func TestWhatIsSharedIsMeasuredWithStockGVisorToo(t *testing.T) {
	c, _ := config(t)
	stock, m := config(t)
	c.Only, c.Stock = []string{"share.first_write", "share.again"}, &stock
	rows, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rows {
		names = append(names, strings.TrimPrefix(r.Name, "share."))
	}
	want := "again.wall.1024 again.stopped.1024 again.written_mb.1024 again.wall.1024.stock again.stopped.1024.stock again.written_mb.1024.stock" +
		" first_write.256 first_write.256.stock"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if all, _ := stock.Engine.Sandboxes(t.Context()); len(all) != 0 || len(m.Images()) != 1 {
		t.Errorf("left in the other engine: %v, %d images", all, len(m.Images())-1)
	}
}
