package client_test

import (
	"errors"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/client/clienttest"
)

func TestIdempotencyKeysAreSent(t *testing.T) {
	s := clienttest.New(t)
	c, ctx := s.Client(t), t.Context()
	made, err := c.Create(ctx, client.NewSandbox{Template: "base", Key: "k1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.SnapshotOnce(ctx, made.ID, "ready", "k2")
	_, cerr := c.Clone(ctx, made.ID, client.Cloning{Count: 1, Key: "k3"})
	_, serr := c.Snapshot(ctx, made.ID, "")
	if err := errors.Join(err, cerr, serr); err != nil {
		t.Fatal(err)
	}
	of := "POST /sandboxes/" + string(made.ID)
	for route, want := range map[string]string{"POST /sandboxes": "k1", of + "/snapshots": "k2", of + "/clone": "k3"} {
		if got := s.Calls(route)[0].Key; got != want {
			t.Errorf("%s: key %q, want %q", route, got, want)
		}
	}
	if got := s.Calls(of + "/snapshots")[1].Key; got != "" {
		t.Errorf("a key that nobody gave: %q", got)
	}
}

func TestFilesAndRecoveryAreAskedFor(t *testing.T) {
	s := clienttest.New(t)
	c, ctx := s.Client(t), t.Context()
	made, err := c.Create(ctx, client.NewSandbox{Template: "base", AutoRecover: true, FilesFallback: true})
	if err != nil {
		t.Fatal(err)
	}
	if b := s.Calls("POST /sandboxes")[0].Body; b["autoRecover"] != true || b["filesFallback"] != true {
		t.Errorf("create: %v", b)
	}
	of := "POST /sandboxes/" + string(made.ID)
	perr := c.PauseFilesOnly(ctx, made.ID)
	back, err := c.ResumeWith(ctx, made.ID, client.Resumption{Timeout: time.Minute, FilesFallback: true})
	if err := errors.Join(perr, err); err != nil || back.Restored != cube.RestoredFiles {
		t.Fatalf("%+v (%v)", back, err)
	}
	if b := s.Calls(of + "/pause")[0].Body; b["memory"] != false {
		t.Errorf("pause: %v", b)
	}
	if b := s.Calls(of + "/resume")[0].Body; b["filesFallback"] != true || b["timeout"] != 60.0 || b["memory"] != nil {
		t.Errorf("resume: %v", b)
	}
	if _, err := c.ConnectWith(ctx, made.ID, client.Resumption{Files: true}); err != nil {
		t.Fatal(err)
	}
	if b := s.Calls(of + "/connect")[0].Body; b["memory"] != false || b["filesFallback"] != nil {
		t.Errorf("connect: %v", b)
	}
}

func TestWhatHasEndedIsListedAndBroughtBack(t *testing.T) {
	s := clienttest.New(t)
	c, ctx := s.Client(t), t.Context()
	if none, err := c.Ended(ctx); err != nil || none == nil || len(none) != 0 {
		t.Errorf("of none: %v (%v)", none, err)
	}
	lost := client.Ended{ID: cube.NewSandboxID(), Reason: cube.DeathOOM, Recoverable: true, Recovery: "snap-1"}
	gone := client.Ended{ID: cube.NewSandboxID(), Reason: cube.DeathKilled}
	s.AddEnded(lost)
	s.AddEnded(gone)
	if all, err := c.Ended(ctx); err != nil || len(all) != 2 || all[0] != lost || all[1] != gone {
		t.Errorf("%v (%v)", all, err)
	}
	if all, err := c.Recoverable(ctx); err != nil || len(all) != 1 || all[0] != lost {
		t.Errorf("of those that can be brought back: %v (%v)", all, err)
	}
	if back, err := c.Recover(ctx, lost.ID); err != nil || back.ID != lost.ID || back.Restored != cube.RestoredMemory {
		t.Errorf("%+v (%v)", back, err)
	}
	if _, err := c.Recover(ctx, lost.ID); !errors.Is(err, cube.ErrConflict) {
		t.Errorf("of one that runs: %v", err)
	}
	if _, err := c.Recover(ctx, gone.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("of one that was killed: %v", err)
	}
}

func TestImagesAreVerifiedGarbageCollectedAndPlansShown(t *testing.T) {
	s := clienttest.New(t)
	c, ctx := s.Client(t), t.Context()
	s.AddSnapshot("snap-1", cube.NewSandboxID(), "good")
	s.AddSnapshot("snap-2", cube.NewSandboxID(), "flipped")
	if v, err := c.VerifyImage(ctx, "good"); err != nil || v.ID != "snap-1" || v.Bytes != 5<<20 || v.Durable {
		t.Errorf("%+v (%v)", v, err)
	}
	if _, err := c.VerifyImage(ctx, "flipped"); !errors.Is(err, cube.ErrCorrupt) {
		t.Errorf("of a flipped bit: %v", err)
	}
	if _, err := c.VerifyImage(ctx, "a/b"); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	if all, err := c.Snapshots(ctx, ""); err != nil || len(all) != 2 || all[0].Level != "durable" || all[1].Level != "published" || all[1].Durable ||
		all[0].Unique != 5<<20 || all[0].Shared != 1<<30 {
		t.Errorf("%+v (%v)", all, err)
	}
	s.AddGarbage(cube.Garbage{Kind: cube.GarbageEngine, Name: "v1", Bytes: 3, Why: "no image needs it"})
	for i, dry := range []bool{true, false, false} {
		if found, err := c.Collect(ctx, dry); err != nil || len(found) != 1-i/2 {
			t.Errorf("%d: %v (%v)", i, found, err)
		}
	}
	p := client.Plan{ID: "p", Verb: cube.VerbPause, Ahead: true, Steps: []client.Step{{Name: "saved", Done: true}}}
	s.AddPlan(p)
	if all, err := c.Plans(ctx); err != nil || len(all) != 1 || all[0].Verb != cube.VerbPause || all[0].Steps[0] != p.Steps[0] {
		t.Errorf("%v (%v)", all, err)
	}
}
