package e2e

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
)

// TestEverythingInsideGoesOn: a loopback TCP connection, an open and unlinked file,
// asyncio over epoll, a child, a pipe, a PTY shell and inotify, right after each
// verb, three generations deep.
func TestEverythingInsideGoesOn(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	life := l.Check(t, id)
	// is checks that it is the same program, in the state that is expected.
	is := func(t *testing.T, id cube.SandboxID, uses int) {
		t.Helper()
		if got, want := l.Check(t, id), (lab.Life{Identity: life.Identity, PID: life.PID, Uses: uses}); got != want {
			t.Errorf("sandbox %s: got %+v, want %+v", id, got, want)
		}
	}
	gen := cube.Generation(1)
	for depth := 1; depth <= 3; depth++ {
		step := func(name string, do func(t *testing.T)) {
			if !t.Run(fmt.Sprintf("%s, depth %d", name, depth), do) {
				t.FailNow()
			}
		}
		at := life.Uses // what the image below has seen
		var image cube.ImageID
		step("after snapshot", func(t *testing.T) {
			image = save(t, id)
			is(t, id, at+1)
		})
		step("after rollback", func(t *testing.T) {
			_, err := l.Engine.Rollback(t.Context(), id, image)
			noError(t, err, "rollback")
			gen++
			is(t, id, at+1)
		})
		step("after clone", func(t *testing.T) {
			clones := clone(t, id, 2)
			for _, c := range clones {
				is(t, c, at+2)
			}
			is(t, id, at+2)
			noError(t, l.Engine.Kill(t.Context(), id), "kill the source")
			id, gen = clones[1], 1 // go on with a clone
		})
		step("after pause and resume", func(t *testing.T) {
			img, err := l.Engine.Pause(t.Context(), id, cube.NewSnapshotID(), cube.Pausing{})
			noError(t, err, "pause")
			gen++
			_, err = l.Engine.Resume(t.Context(), cube.CreateSpec{ID: id, Image: img.ID, Generation: gen})
			noError(t, err, "resume")
			is(t, id, at+3)
		})
		step("after create from its snapshot", func(t *testing.T) {
			s, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: image})
			noError(t, err, "create")
			is(t, s.ID, at+1)
			noError(t, l.Engine.Kill(t.Context(), s.ID), "kill")
		})
		life.Uses = at + 3
	}
}

func TestAConnectionGoesOnThroughASnapshotOfItsSource(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	c := connect(t, id)
	// It talks all the time. What is lost while the source stands still is sent again
	// a moment later, so a line may take longer then.
	c.patience = 10 * time.Second
	var lines atomic.Int64
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := c.say(); err != nil {
				done <- fmt.Errorf("line %d: %w", c.n, err)
				return
			}
			lines.Add(1)
		}
	}()
	for range 3 {
		before := lines.Load()
		save(t, id)
		noError(t, lab.Until(10*time.Second, "the connection goes on", func() error {
			if now := lines.Load(); now < before+5 {
				return fmt.Errorf("%d lines since", now-before)
			}
			return nil
		}), "after a snapshot")
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestOutputOfAProcessGoesOnThroughASnapshotOfItsSource(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	out := make(chan string, 1)
	go func() {
		r, err := l.Run(t.Context(), id, "/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done")
		out <- fmt.Sprintf("%s%v", strings.ReplaceAll(string(r.Stdout), "\n", " "), err)
	}()
	for range 3 {
		save(t, id)
	}
	if got, want := <-out, "1 2 3 4 5 6 7 8 <nil>"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestClonesWriteToOnePathAndDoNotSeeEachOther(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	sh(t, id, "echo original > /root/path")
	all := append(clone(t, id, 4), id)
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			if err := l.WriteFile(t.Context(), c, "/root/path", []byte(c)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, c := range all {
		if got := sh(t, c, "cat /root/path; ls /root"); !strings.HasPrefix(got, string(c)) {
			t.Errorf("%s: got %q, want its own id", c, got)
		}
	}
}

func TestFiftyClonesOfBaseAllAnswer(t *testing.T) {
	l.Guard(t)
	s, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Base})
	noError(t, err, "create")
	sh(t, s.ID, "echo shared > /root/path")
	began := time.Now()
	clones := clone(t, s.ID, 50)
	hosts := map[string]bool{}
	for _, id := range clones {
		if got := sh(t, id, "cat /root/path; uname -n"); !strings.HasPrefix(got, "shared\n") {
			t.Errorf("clone %s: got %q", id, got)
		} else {
			hosts[got] = true
		}
	}
	t.Logf("50 clones, all of which have answered: %v", time.Since(began))
	if len(hosts) != 50 {
		t.Errorf("got %d host names among 50 clones", len(hosts))
	}
}

func TestFiveThousandClonesAreRefusedAtOnceWithNeededAndFree(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	before := l.Check(t, id)
	c := connect(t, id)
	specs := make([]cube.CreateSpec, 5000)
	for i := range specs {
		specs[i].ID = cube.NewSandboxID()
	}
	began := time.Now()
	_, err := l.Engine.Clone(t.Context(), id, specs, 0)
	took := time.Since(began)
	isRefused(t, err)
	if took > 100*time.Millisecond {
		t.Errorf("the refusal took %v, want less than 100 ms", took)
	}
	answersAsBefore(t, id, before, c)
}
