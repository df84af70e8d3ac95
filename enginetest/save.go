package enginetest

import (
	"context"
	"time"

	cube "cubesandbox"
)

// cancelMoments are all over the length of a verb.
var cancelMoments = []time.Duration{
	0, time.Millisecond, 5 * time.Millisecond, 15 * time.Millisecond, 40 * time.Millisecond, 90 * time.Millisecond,
}

func savePromises() []promise {
	return []promise{
		{"save: the image is published, names its source and holds the state of that moment", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "saved")
			id := cube.NewSnapshotID()
			img, err := x.e.Save(x.ctx, s.ID, id)
			x.noError(err, "save")
			x.put(s.ID, "k", "later")
			if img.ID != id || img.Source != s.ID || img.Kind != cube.KindSnapshot || img.Limits != s.Limits ||
				img.Engine == "" || img.Rootfs == "" || img.PagesBytes <= 0 || img.Bytes <= 0 || time.Since(img.Created).Abs() > time.Minute {
				x.Errorf("got %+v", img)
			}
			x.published(id, true)
			c, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: id})
			x.noError(err, "create from it")
			x.holds(c.ID, "k", "saved")
		}},
		{"save: the sandbox keeps its connections and runs on", func(x *X) {
			s := x.create()
			c := x.connect(s.ID)
			for range 3 {
				x.save(s.ID)
				c.works()
				x.runs(s.ID, 1)
			}
			x.put(s.ID, "k", "on")
			x.holds(s.ID, "k", "on")
		}},
		{"save: an image id that is taken exists already", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "first")
			img := x.save(s.ID)
			x.put(s.ID, "k", "second")
			_, err := x.e.Save(x.ctx, s.ID, img)
			x.wantError(err, cube.ErrExists, "save")
			_, err = x.e.Pause(x.ctx, s.ID, img, cube.Pausing{})
			x.wantError(err, cube.ErrExists, "pause")
			x.runs(s.ID, 1)
			c, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: img})
			x.noError(err, "create")
			x.holds(c.ID, "k", "first")
		}},
		{"save: after failure the image does not exist and the sandbox runs on", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "v")
			c := x.connect(s.ID)
			undo, ok := x.fault(SaveFails, "")
			if !ok {
				return
			}
			img := cube.NewSnapshotID()
			_, err := x.e.Save(x.ctx, s.ID, img)
			x.wantError(err, cube.ErrNoSpace, "save")
			x.holds(s.ID, "k", "v")
			undo()
			x.published(img, false)
			x.runs(s.ID, 1)
			c.works()
			_, err = x.e.Save(x.ctx, s.ID, img)
			x.noError(err, "save under the same id afterwards")
		}},
		{"save: an image outlives its sandbox", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "saved")
			img := x.save(s.ID)
			x.noError(x.e.Kill(x.ctx, s.ID), "kill")
			_, err := x.e.Create(x.ctx, cube.CreateSpec{ID: s.ID, Image: img})
			x.noError(err, "create under the same id")
			x.holds(s.ID, "k", "saved")
		}},
	}
}

func pausePromises() []promise {
	return []promise{
		{"pause: the engine no longer knows the sandbox and resume brings it back", func(x *X) {
			who := cube.Identity{Hostname: "sleeper", AccessToken: "t"}
			s, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: x.h.Image, Identity: who})
			x.noError(err, "create")
			for gen := cube.Generation(1); gen <= 3; gen++ {
				x.put(s.ID, "k", string(rune('a'+gen)))
				c := x.connect(s.ID)
				img, err := x.e.Pause(x.ctx, s.ID, cube.NewSnapshotID(), cube.Pausing{})
				x.noError(err, "pause")
				if img.Kind != cube.KindPause || img.Source != s.ID {
					x.Errorf("got an image of kind %s from %s, want pause from %s", img.Kind, img.Source, s.ID)
				}
				x.gone(s.ID)
				x.published(img.ID, true)
				c.isReset()
				back, err := x.e.Resume(x.ctx, cube.CreateSpec{ID: s.ID, Image: img.ID, Generation: gen + 1, Identity: who})
				x.noError(err, "resume")
				if back.ID != s.ID || back.Generation != gen+1 || back.Image != img.ID {
					x.Errorf("got %+v, want %s in generation %d from %s", back, s.ID, gen+1, img.ID)
				}
				x.runs(s.ID, gen+1)
				x.holds(s.ID, "k", string(rune('a'+gen)))
				x.isTold(s.ID, who)
			}
		}},
		{"pause: after failure it runs on in the same generation with its connections", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "v")
			c := x.connect(s.ID)
			undo, ok := x.fault(SaveFails, "")
			if !ok {
				return
			}
			img := cube.NewSnapshotID()
			_, err := x.e.Pause(x.ctx, s.ID, img, cube.Pausing{})
			x.wantError(err, cube.ErrNoSpace, "pause")
			x.holds(s.ID, "k", "v")
			c.works()
			undo()
			x.runs(s.ID, 1)
			x.published(img, false)
			_, err = x.e.Pause(x.ctx, s.ID, img, cube.Pausing{})
			x.noError(err, "pause under the same image id afterwards")
		}},
		{"resume: after failure it does not run and the image can be resumed again", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "v")
			img, err := x.e.Pause(x.ctx, s.ID, cube.NewSnapshotID(), cube.Pausing{})
			x.noError(err, "pause")
			spec := cube.CreateSpec{ID: s.ID, Image: img.ID, Generation: 2}
			undo, ok := x.fault(StartFails, img.ID)
			if !ok {
				return
			}
			if _, err = x.e.Resume(x.ctx, spec); err == nil {
				x.Error("resume: got no error")
			}
			x.gone(s.ID)
			undo()
			_, err = x.e.Resume(x.ctx, spec)
			x.noError(err, "resume again")
			x.runs(s.ID, 2)
			x.holds(s.ID, "k", "v")
		}},
		{"resume: from a bad image it fails with the reason and does not run", func(x *X) {
			x.eachImageFault(func(_ cube.SandboxID, bad cube.ImageID, want error) {
				id := cube.NewSandboxID()
				_, err := x.e.Resume(x.ctx, cube.CreateSpec{ID: id, Image: bad, Generation: 2})
				x.wantError(err, want, "resume")
				x.gone(id)
			})
		}},
		{"resume: a generation that cannot be above that of the paused life is invalid", func(x *X) {
			for gen := range cube.Generation(2) {
				_, err := x.e.Resume(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: x.h.Image, Generation: gen})
				x.wantError(err, cube.ErrInvalid, "resume")
			}
		}},
		{"resume: an id that runs exists already", func(x *X) {
			s := x.create()
			_, err := x.e.Resume(x.ctx, cube.CreateSpec{ID: s.ID, Image: x.h.Image, Generation: 2})
			x.wantError(err, cube.ErrExists, "resume")
			x.runs(s.ID, 1)
		}},
		{"resume: cancelled it does not run, or runs, and can be tried again", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "v")
			img, err := x.e.Pause(x.ctx, s.ID, cube.NewSnapshotID(), cube.Pausing{})
			x.noError(err, "pause")
			for i, after := range cancelMoments {
				ctx, cancel := context.WithTimeout(x.ctx, after)
				_, err := x.e.Resume(ctx, cube.CreateSpec{ID: s.ID, Image: img.ID, Generation: cube.Generation(i + 2)})
				cancel()
				if err == nil {
					x.noError(x.e.Kill(x.ctx, s.ID), "kill")
					continue
				}
				x.wantError(err, context.DeadlineExceeded, "resume")
				x.gone(s.ID)
			}
			_, err = x.e.Resume(x.ctx, cube.CreateSpec{ID: s.ID, Image: img.ID, Generation: 50})
			x.noError(err, "resume")
			x.holds(s.ID, "k", "v")
		}},
	}
}
