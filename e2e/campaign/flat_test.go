package campaign

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// TestManyCreatesAndKillsLeaveNothing: after a fifth of them, and at the end, what the
// server, the keeper and the network process hold is the same: descriptors, goroutines
// or threads, and memory but for a small bound; and so are mounts and processes (by
// the guard) and the disk.
func TestManyCreatesAndKillsLeaveNothing(t *testing.T) {
	guard(t)
	n := lab.Pick(50, 500, 10_000)
	createAndKill(t, n/5)
	before := weigh(t)
	createAndKill(t, n-n/5)
	after := weigh(t)
	for _, what := range slices.Sorted(maps.Keys(before)) {
		grown := after[what] - before[what]
		bound := bounds[what[strings.LastIndexByte(what, ' ')+1:]]
		if bound >= 1<<20 {
			bound += perEnded * float64(n)
		}
		t.Logf("%-24s %12.0f %12.0f", what, before[what], after[what])
		if grown > bound {
			t.Errorf("%s: %.0f after %d creates, %.0f after %d; want no more than %.0f more", what, before[what], n/5, after[what], n, bound)
		}
	}
}

// bounds of what may be more at the end, in bytes for memory and disk: what a Go program
// holds goes up and down between two collections.
var bounds = map[string]float64{
	"descriptors": 4, "goroutines": 8, "threads": 4, "memory": 8 << 20, "disk": 8 << 20,
}

// perEnded is what may be kept of a sandbox that has ended, in bytes: for a day it is
// remembered why.
const perEnded = 3 << 10

// createAndKill does it n times, two at a time.
func createAndKill(t *testing.T, n int) {
	t.Helper()
	lab.ByTwos(n, func() bool {
		b, err := users.Create(t.Context(), client.NewSandbox{Template: "base"})
		if err == nil {
			err = users.Kill(t.Context(), b.ID)
		}
		if err != nil {
			t.Error(err)
		}
		return err == nil
	})
	users.Close()
}

// weigh measures what is held, by who and what.
func weigh(t *testing.T) map[string]float64 {
	t.Helper()
	ctx := t.Context()
	m, err := metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w := map[string]float64{"server goroutines": m["go_goroutines"]}
	keeper, err := s.Keeper(ctx)
	network, nerr := s.Network(ctx)
	if err := errors.Join(err, nerr); err != nil {
		t.Fatal(err)
	}
	for name, pid := range map[string]int{"server": s.PID(), "keeper": keeper, "network": network} {
		if err := weighProcess(w, name, pid); err != nil {
			t.Fatal(err)
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(s.StateDir(), &st); err != nil {
		t.Fatal(err)
	}
	w["disk"] = float64(int64(st.Blocks-st.Bfree) * st.Bsize)
	return w
}

func weighProcess(w map[string]float64, name string, pid int) error {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return err
	}
	w[name+" descriptors"] = float64(len(fds))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		switch {
		case len(f) < 2:
		case f[0] == "Threads:":
			w[name+" threads"], err = strconv.ParseFloat(f[1], 64)
		case f[0] == "VmRSS:": // KiB
			var kib float64
			kib, err = strconv.ParseFloat(f[1], 64)
			w[name+" memory"] = kib * 1024
		}
		if err != nil {
			return fmt.Errorf("%s of %s: %w", f[0], name, err)
		}
	}
	return nil
}

// metrics are those of the server that have no labels.
func metrics(ctx context.Context) (map[string]float64, error) {
	res, err := send(ctx, api, request{method: http.MethodGet, path: "/metrics"})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for lines := bufio.NewScanner(&b); lines.Scan(); {
		name, text, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(text, 64); ok && err == nil {
			out[name] = v
		}
	}
	if out["go_goroutines"] == 0 {
		return nil, fmt.Errorf("the server tells nothing of its goroutines: %s", res.Status)
	}
	return out, nil
}
