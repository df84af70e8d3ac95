package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
	"cubesandbox/internal/local"
)

// serverEnv has this program be a server of the lab that it describes.
const serverEnv = "CUBE_E2E_SERVER"

// served is what a server is told.
type served struct {
	Options local.Options
	Witness cube.ImageID
}

// serve does one verb after the other until it is killed.
func serve() int {
	var s served
	err := json.Unmarshal([]byte(os.Getenv(serverEnv)), &s)
	if err == nil {
		err = verbs(s)
	}
	fmt.Fprintln(os.Stderr, "server:", err)
	return 1
}

func verbs(s served) error {
	ctx := context.Background()
	session, err := local.Open(ctx, s.Options)
	if err != nil {
		return err
	}
	e := session.Engine
	if err := e.SetPools(ctx, cube.Pools{Booted: 1, Restored: map[cube.ImageID]int{s.Witness: 1}}); err != nil {
		return err
	}
	fmt.Println("open")
	for {
		image, paused := cube.NewSnapshotID(), cube.NewSnapshotID()
		ids := []cube.SandboxID{cube.NewSandboxID(), cube.NewSandboxID(), cube.NewSandboxID()}
		_, create := e.Create(ctx, cube.CreateSpec{ID: ids[0], Image: s.Witness})
		_, save := e.Save(ctx, ids[0], image)
		_, clone := e.Clone(ctx, ids[0], []cube.CreateSpec{{ID: ids[1]}, {ID: ids[2]}}, 0)
		_, rollback := e.Rollback(ctx, ids[0], image)
		_, pause := e.Pause(ctx, ids[0], paused, cube.Pausing{})
		_, resume := e.Resume(ctx, cube.CreateSpec{ID: ids[0], Image: paused, Generation: 3})
		if err := errors.Join(create, save, clone, rollback, pause, resume); err != nil {
			return err
		}
		for _, id := range ids {
			if err := e.Kill(ctx, id); err != nil {
				return err
			}
		}
	}
}

// TestKillOfTheServerAtAnyMomentLosesNothingAndLeavesNothing: each time whatever
// verb was at work is either done or undone when the next server is there.
func TestKillOfTheServerAtAnyMomentLosesNothingAndLeavesNothing(t *testing.T) {
	l.Guard(t)
	keeps := witness(t)
	life := l.Check(t, keeps)
	times := 8
	if lab.Long() {
		times = 80
	}
	for i := range times {
		noError(t, l.Close(), "close the engine")
		lived := killServer(t)
		noError(t, l.Take(t.Context()), "open the engine again")
		checkAfter(t, fmt.Sprintf("kill %d, after %v", i+1, lived))
		if got := l.Check(t, keeps); got.Identity != life.Identity || got.Uses != life.Uses+i+1 {
			t.Errorf("the sandbox from before: got %+v, want %+v used %d times more", got, life, i+1)
		}
	}
}

// killServer starts a server and kills it at some moment of its first two rounds.
func killServer(t *testing.T) time.Duration {
	t.Helper()
	env, err := json.Marshal(served{l.Options(), l.Witness})
	noError(t, err, "describe the lab")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+string(env))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	noError(t, err, "pipe")
	noError(t, cmd.Start(), "start a server")
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the server said %q: %v", line, err)
	}
	lives := time.Duration(rand.IntN(1500)) * time.Millisecond
	moment := time.NewTimer(lives)
	defer moment.Stop()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Errorf("the server ended by itself: %v", err)
	case <-moment.C:
		noError(t, cmd.Process.Kill(), "kill the server")
		<-ended
	}
	return lives
}

// checkAfter checks that what is listed works: sandboxes run and answer, images
// can be restored.
func checkAfter(t *testing.T, when string) {
	t.Helper()
	all, err := l.Engine.Sandboxes(t.Context())
	noError(t, err, "list")
	for _, s := range all {
		if s.State != cube.StateRunning {
			t.Errorf("%s: sandbox %s is %s (death %+v)", when, s.ID, s.State, s.Death)
			continue
		}
		if _, err := lab.Get(t.Context(), l.Engine, s.ID, "k"); err != nil {
			t.Errorf("%s: sandbox %s: %v", when, s.ID, err)
		}
	}
	images, err := l.Images.Images()
	noError(t, err, "list images")
	for _, img := range images {
		if img.ID == l.Base || img.ID == l.Witness {
			continue
		}
		s, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: img.ID})
		if err != nil {
			t.Errorf("%s: create from %s %s: %v", when, img.Kind, img.ID, err)
			continue
		}
		l.Check(t, s.ID)
		noError(t, l.Engine.Kill(t.Context(), s.ID), "kill")
		noError(t, l.Images.Delete(img.ID), "delete image")
	}
}
