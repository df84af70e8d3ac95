package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// TestTwentyClonesWhereThereIsRoomForTwelveAreRefusedBeforeTheyStart: by our own
// verb, and by the client that makes them one by one.
func TestTwentyClonesWhereThereIsRoomForTwelveAreRefusedBeforeTheyStart(t *testing.T) {
	ctx := t.Context()
	// A base sandbox is promised about 40 MB: source and twelve clones.
	small, err := lab.OpenServer(ctx, "--memory", "520")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := small.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	var src client.Sandbox
	for range 2 { // the first, so that what is opened at first use looks like no leak
		if src.ID != "" {
			if err := small.API.Kill(ctx, src.ID); err != nil {
				t.Fatal(err)
			}
			small.Guard(t)
		}
		if src, err = small.API.Create(ctx, client.NewSandbox{Template: "base"}); err != nil {
			t.Fatal(err)
		}
	}
	lives := func() int {
		h, err := small.LivesHere(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	before := lives()
	_, err = small.API.Clone(ctx, src.ID, client.Cloning{Count: 20})
	if !errors.Is(err, cube.ErrNoCapacity) || !strings.Contains(err.Error(), "MiB needed") || !strings.Contains(err.Error(), "MiB free") {
		t.Errorf("got %v, want a refusal with needed and free", err)
	}
	if n := lives(); n != before {
		t.Errorf("%d lives, want %d: work began", n, before)
	}
	made, err := small.API.Clone(ctx, src.ID, client.Cloning{Count: 10})
	if err != nil || len(made) != 10 {
		t.Errorf("ten: %d (%v)", len(made), err)
	}
	all, err := small.API.List(ctx, client.Query{})
	if err != nil || len(all) != 11 {
		t.Errorf("%d sandboxes (%v), want 11", len(all), err)
	}
}

// TestTheServerAtRestIsSmall: all of our processes without sandboxes take at most
// 120 MB.
func TestTheServerAtRestIsSmall(t *testing.T) {
	ctx := t.Context()
	rest, err := lab.OpenServer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rest.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	keeper, err := rest.Keeper(ctx)
	if err != nil {
		t.Fatal(err)
	}
	network, err := rest.Network(ctx)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for name, pid := range map[string]int{"server": rest.State.PID, "keeper": keeper, "network": network} {
		kb := resident(t, pid)
		t.Logf("%s: %d kB", name, kb)
		total += kb
	}
	if total > 120<<10 {
		t.Errorf("%d kB, want at most 120 MB", total)
	}
}

// resident is a process's VmRSS, in KiB.
func resident(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			return kb
		}
	}
	t.Fatalf("process %d has no VmRSS", pid)
	return 0
}

// TestTheProbePassesOverTheAPI: nothing is left after it.
func TestTheProbePassesOverTheAPI(t *testing.T) {
	s.Guard(t)
	rounds := "3"
	if lab.Long() {
		rounds = "20"
	}
	o := s.Options()
	cmd := exec.Command(filepath.Join(o.BinDir, "cube"), "probe", "--rounds", rounds, "--json", "--run-dir", o.RunDir, "--state-dir", o.StateDir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), `"result": "PASS"`) {
		t.Errorf("%v: %s %s", err, out.String(), errs.String())
	}
}
