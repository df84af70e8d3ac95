package service

import (
	"context"
	"syscall"
	"testing"

	cube "cubesandbox"
	"cubesandbox/client"
)

// TestSandboxesOfAllKindsOutliveTheServer: SIGTERM and SIGKILL of `cube serve` with
// running, paused and snapshotted sandboxes. All are there afterwards, and answer,
// and the processes inside have not noticed.
func TestSandboxesOfAllKindsOutliveTheServer(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			s.Guard(t)
			ctx := t.Context()
			running := create(t, client.NewSandbox{Metadata: map[string]string{"kind": "running"}})
			paused := create(t, client.NewSandbox{})
			for _, b := range []client.Sandbox{running, paused} {
				sh(t, b, counter)
			}
			pid, n := asked(t, running)
			pausedPID, pausedN := asked(t, paused)
			snap, err := s.API.Snapshot(ctx, running.ID, "kept")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.API.Pause(ctx, paused.ID); err != nil {
				t.Fatal(err)
			}
			if err := s.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := s.Start(ctx); err != nil {
				t.Fatal(err)
			}
			got, err := s.API.Get(ctx, running.ID)
			if err != nil || got.State != "running" || got.AccessToken != running.AccessToken || got.Metadata["kind"] != "running" {
				t.Fatalf("running: %+v (%v)", got, err)
			}
			if p, m := asked(t, running); p != pid || m <= n {
				t.Errorf("the counter of %d at %d is now %d at %d", pid, n, p, m)
			}
			if got, err := s.API.Get(ctx, paused.ID); err != nil || got.State != "paused" {
				t.Fatalf("paused: %+v (%v)", got, err)
			}
			if _, err := s.API.Connect(ctx, paused.ID, 0); err != nil {
				t.Fatal(err)
			}
			if p, m := asked(t, paused); p != pausedPID || m < pausedN {
				t.Errorf("the paused counter of %d at %d is now %d at %d", pausedPID, pausedN, p, m)
			}
			copied := create(t, client.NewSandbox{Template: string(snap.ID)})
			if p, m := asked(t, copied); p != pid || m < n {
				t.Errorf("the counter in the snapshot, %d at %d, is now %d at %d", pid, n, p, m)
			}
			if err := s.API.Rollback(ctx, running.ID, "kept"); err != nil {
				t.Fatal(err)
			}
			if p, _ := asked(t, running); p != pid {
				t.Errorf("after a rollback the pid is %d, want %d", p, pid)
			}
		})
	}
}

// TestWhatAVerbHadBegunWhenTheServerWasKilledIsAllOrNothing: killed in the midst of
// clones, pauses and creates, the server finds on its next start only what is whole.
func TestWhatAVerbHadBegunWhenTheServerWasKilledIsAllOrNothing(t *testing.T) {
	s.Guard(t)
	ctx := t.Context()
	for round := range 4 {
		src := create(t, client.NewSandbox{})
		sh(t, src, counter)
		began := make(chan struct{})
		done := make(chan error, 3)
		verb, cancel := context.WithCancel(ctx)
		go func() {
			close(began)
			_, err := s.API.Clone(verb, src.ID, client.Cloning{Count: 3})
			done <- err
		}()
		<-began
		go func() { _, err := s.API.Create(verb, client.NewSandbox{Template: "base"}); done <- err }()
		if round%2 == 0 { // while they are at work; else right after one of them is done
			waitFor(t, "a verb is at work", func() bool { return metric(t, "cube_api_requests_in_flight") >= 2 })
		} else {
			<-done
			done <- nil
		}
		if err := s.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-done
		<-done
		if err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
		all, err := s.API.List(ctx, client.Query{})
		if err != nil {
			t.Fatal(err)
		}
		clones := 0
		for _, b := range all {
			full, err := s.API.Get(ctx, b.ID)
			if err != nil {
				t.Fatal(err)
			}
			if b.ID == src.ID || full.Parent == "" {
				continue
			}
			clones++
		}
		if clones != 0 && clones != 3 {
			t.Errorf("round %d: %d of 3 clones are there", round, clones)
		}
		asked(t, src)
		for _, b := range all {
			if err := s.API.Kill(ctx, b.ID); err != nil {
				t.Errorf("kill %s: %v", b.ID, err)
			}
		}
	}
	_, err := s.API.Get(ctx, cube.NewSandboxID())
	is(t, err, cube.ErrNotFound)
}
