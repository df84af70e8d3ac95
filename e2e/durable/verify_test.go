package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// verifier compares what is there after a power cut with what clients had been told
// before it. What it finds, and what it brings back, it notes for the next cut.
type verifier struct {
	t      *testing.T
	ctx    context.Context
	s      *lab.Server
	l      *ledger
	random *rand.Rand

	ended  map[cube.SandboxID]client.Ended
	listed map[cube.ImageID]client.Snapshot
}

// verify looks at everything.
func (v *verifier) verify() {
	v.lookAround()
	v.checkSnapshots()
	for _, b := range v.l.boxes {
		v.checkBox(b)
	}
	v.checkStrangers()
	v.checkKeys()
	v.checkTemplates()
	v.checkOrphans()
}

// lookAround asks for the lists, once what is done after a start in the background is
// done.
func (v *verifier) lookAround() {
	v.ended, v.listed = map[cube.SandboxID]client.Ended{}, map[cube.ImageID]client.Snapshot{}
	var snaps []client.Snapshot
	err := lab.Until(answerTime, "all snapshots are durable", func() (err error) {
		if snaps, err = v.s.API.Snapshots(v.ctx, ""); err != nil {
			return err
		}
		for _, sn := range snaps {
			if !sn.Durable {
				return fmt.Errorf("%s is not", sn.ID)
			}
		}
		return nil
	})
	if err != nil {
		v.t.Fatalf("%v; the server's log:\n%s", err, v.s.Warnings(20))
	}
	for _, sn := range snaps {
		v.listed[sn.ID] = sn
	}
	ended, err := v.s.API.Ended(v.ctx)
	if err != nil {
		v.t.Fatal(err)
	}
	for _, e := range ended {
		v.ended[e.ID] = e
	}
}

// checkSnapshots: what was said to be durable is there and whole, what was deleted is
// not there, and all that is listed is whole.
func (v *verifier) checkSnapshots() {
	for id, sn := range v.l.snapshots {
		_, there := v.listed[id]
		switch {
		case sn.deleted:
			if _, err := v.s.API.Create(v.ctx, client.NewSandbox{Template: string(id)}); there || !errors.Is(err, cube.ErrNotFound) {
				v.t.Errorf("snapshot %s was deleted, and is listed (%t), and create says %v", id, there, err)
			}
			v.l.show("deleted snapshots not there")
		case sn.doubt:
			sn.deleted = !there
			sn.doubt = false
		case sn.durable && !there:
			v.t.Errorf("snapshot %s of %s was durable, and is lost", id, sn.source)
		case !there:
			sn.deleted = true // it was not durable
			v.l.show("snapshots lost that were not durable yet")
		case sn.durable:
			v.l.show("durable snapshots there")
		}
	}
	for id := range v.listed {
		if _, err := v.s.API.VerifyImage(v.ctx, string(id)); err != nil {
			v.t.Errorf("snapshot %s is listed as durable and is not whole: %v", id, err)
			continue
		}
		v.adopt(id)
		v.l.show("snapshots whole")
		if v.random.IntN(5) == 0 {
			v.checkChild(v.l.snapshots[id])
		}
	}
}

// adopt takes a snapshot into the ledger whose answer was lost.
func (v *verifier) adopt(id cube.ImageID) {
	if v.l.snapshots[id] != nil {
		return
	}
	b := v.l.boxes[v.listed[id].Source]
	if b == nil || b.doubt != verbSnap {
		v.t.Errorf("snapshot %s of %s: nobody has asked for it", id, v.listed[id].Source)
		return
	}
	v.l.snapshots[id] = &snapshot{id: id, source: b.ID, st: b.st, durable: true}
	v.l.show("snapshots there whose answer was lost")
}

// checkChild: a sandbox made from a snapshot is in its state.
func (v *verifier) checkChild(sn *snapshot) {
	if sn == nil {
		return
	}
	made, err := v.s.API.Create(v.ctx, client.NewSandbox{Template: string(sn.id)})
	if err != nil {
		v.t.Errorf("create from %s: %v", sn.id, err)
		return
	}
	v.state(&box{Sandbox: made}, sn.st, "made from a snapshot")
	v.kill(made.ID)
	v.l.show("sandboxes made from a snapshot in its state")
}

// checkBox: it is what its client was told, or what its last verb, whose answer was
// lost, would have made of it.
func (v *verifier) checkBox(b *box) {
	now, err := v.s.API.Get(v.ctx, b.ID)
	if err != nil && !errors.Is(err, cube.ErrNotFound) {
		v.t.Errorf("sandbox %s: %v", b.ID, err)
		return
	}
	there := err == nil
	switch {
	case b.killed:
		v.checkKilled(b, there)
	case b.doubt == verbKill && !there && v.ended[b.ID].Reason == cube.DeathKilled:
		b.killed = true
	case b.paused && b.doubt == nothing, there && now.State == "paused" && (b.doubt == verbHalt || b.doubt == verbWake || b.doubt == verbKill):
		v.checkPaused(b, now, err)
	default:
		v.checkRan(b, now, there)
	}
	b.doubt = nothing
}

// checkKilled: it stays so.
func (v *verifier) checkKilled(b *box, there bool) {
	if there || v.ended[b.ID].Recoverable {
		v.t.Errorf("sandbox %s was killed, and is there again (%t) or could be recovered (%t)", b.ID, there, v.ended[b.ID].Recoverable)
	}
	if _, err := v.s.API.Recover(v.ctx, b.ID); !errors.Is(err, cube.ErrNotFound) {
		v.t.Errorf("recover %s, which was killed: %v, want not found", b.ID, err)
	}
	v.l.show("killed sandboxes stay so")
}

// checkPaused: it is paused, and comes back as it was.
func (v *verifier) checkPaused(b *box, now client.Sandbox, err error) {
	if err != nil || now.State != "paused" {
		v.t.Errorf("sandbox %s was paused at %s, and is %q: %v", b.ID, b.at.Format(time.StampMilli), now.State, err)
		v.dead(b)
		return
	}
	if _, err := v.s.API.Resume(v.ctx, b.ID, 0); err != nil {
		v.t.Errorf("resume %s: %v", b.ID, err)
		v.dead(b)
		return
	}
	b.paused = false
	v.state(b, b.st, "paused")
	v.l.show("paused sandboxes resumed whole")
}

// checkRan: it ran, so it has ended, which says why, and where there is a snapshot of
// it, it is brought back to that, by itself if that was asked for.
func (v *verifier) checkRan(b *box, now client.Sandbox, there bool) {
	way := v.newest(b.ID)
	if there && !(b.auto && way != nil) {
		v.t.Errorf("sandbox %s ran (%s), and is %s after a power cut", b.ID, b.doubt, now.State)
		v.dead(b)
		return
	}
	if e, ok := v.ended[b.ID]; !there && (!ok || e.Reason == "" || e.Recoverable != (way != nil)) {
		v.t.Errorf("sandbox %s ran, and its end is %+v (%t); it has a snapshot: %t", b.ID, e, ok, way != nil)
	}
	if way == nil {
		v.l.show("running sandboxes reported as ended")
		v.dead(b)
		return
	}
	if err := v.bringBack(b); err != nil {
		v.t.Errorf("recover %s from %s: %v", b.ID, way.id, err)
		v.dead(b)
		return
	}
	b.st = way.st
	b.paused = false
	v.state(b, b.st, "recovered")
}

// bringBack recovers it, or waits until that has happened by itself.
func (v *verifier) bringBack(b *box) error {
	// What dies again within a minute is not brought back again by itself.
	again := !b.recovered.IsZero()
	b.recovered = time.Now()
	if b.auto && !again {
		v.l.show("running sandboxes brought back by themselves")
		return lab.Until(answerTime, "it is brought back by itself", func() error {
			got, err := v.s.API.Get(v.ctx, b.ID)
			if err == nil && got.State != "running" {
				err = fmt.Errorf("it is %s", got.State)
			}
			return err
		})
	}
	got, err := v.s.API.Recover(v.ctx, b.ID)
	if b.auto && errors.Is(err, cube.ErrConflict) {
		return nil // it was more than a minute
	}
	if err == nil && (got.ID != b.ID || got.AccessToken != b.AccessToken) {
		err = fmt.Errorf("it is %s, with another token: %t", got.ID, got.AccessToken != b.AccessToken)
	}
	v.l.show("running sandboxes recovered when asked")
	return err
}

// newest is the snapshot that a sandbox goes back to.
func (v *verifier) newest(id cube.SandboxID) *snapshot {
	var newest cube.ImageID
	for key, sn := range v.listed {
		if sn.Source == id && (newest == "" || sn.CreatedAt.After(*v.listed[newest].CreatedAt)) {
			newest = key
		}
	}
	return v.l.snapshots[newest]
}

// dead has the ledger forget a sandbox that is no more.
func (v *verifier) dead(b *box) { b.killed = true; b.doubt = nothing }

// state compares the witness, and has the agent show with the token of long ago that
// the environment is what it was.
func (v *verifier) state(b *box, want state, how string) {
	ctx, cancel := context.WithTimeout(v.ctx, answerTime)
	defer cancel()
	in := inside{v.s, b.Sandbox}
	got, err := in.state(ctx)
	if err != nil || got != want {
		v.t.Errorf("sandbox %s, %s (%v):\ngot  %+v\nwant %+v", b.ID, how, err, got, want)
	}
	if _, err := in.run(ctx, "/bin/true"); err != nil {
		v.t.Errorf("sandbox %s, %s: %v", b.ID, how, err)
	}
}

func (v *verifier) kill(id cube.SandboxID) {
	if err := v.s.API.Kill(v.ctx, id); err != nil {
		v.t.Errorf("kill %s: %v", id, err)
	}
}
