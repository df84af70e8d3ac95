package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
	"cubesandbox/internal/failpoint"
	"cubesandbox/internal/local"
)

// bound is a sandbox at which a verb is done, and what it was before.
type bound struct {
	id    cube.SandboxID
	image cube.ImageID // that a verb writes, or that there was
	life  lab.Life
	state cube.Sandbox
	line  *line
}

func newBound(t *testing.T) *bound {
	t.Helper()
	b := &bound{id: witness(t), image: cube.NewSnapshotID()}
	b.life = l.Check(t, b.id)
	b.line = connect(t, b.id)
	var err error
	b.state, err = l.Engine.Sandbox(t.Context(), b.id)
	noError(t, err, "look at it")
	return b
}

// asBefore checks that the sandbox is in the life in which it was.
func (b *bound) asBefore(t *testing.T) {
	t.Helper()
	now, err := l.Engine.Sandbox(t.Context(), b.id)
	if err != nil || now != b.state {
		t.Errorf("the sandbox is %+v (%v), before it was %+v", now, err, b.state)
	}
	b.line.works()
	want := lab.Life{Identity: b.life.Identity, PID: b.life.PID, Uses: b.life.Uses + 1}
	if got := l.Check(t, b.id); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func noImage(t *testing.T, id cube.ImageID) {
	t.Helper()
	if img, err := l.Images.Image(id); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("there is image %+v (%v)", img, err)
	}
}

func noSandbox(t *testing.T, ids ...cube.SandboxID) {
	t.Helper()
	for _, id := range ids {
		if s, err := l.Engine.Sandbox(t.Context(), id); !errors.Is(err, cube.ErrNotFound) {
			t.Errorf("there is sandbox %+v (%v)", s, err)
		}
	}
}

// boundaries says for each verb how it is done and what is true after it has failed.
var boundaries = map[string]func(t *testing.T, arm func()) (undone func(), fails error){
	"create": func(t *testing.T, arm func()) (func(), error) {
		id := cube.NewSandboxID()
		arm()
		_, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: id, Image: l.Witness})
		return func() {
			noSandbox(t, id)
			_, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: id, Image: l.Witness})
			noError(t, err, "create it after all")
			l.Check(t, id)
		}, err
	},
	"save": func(t *testing.T, arm func()) (func(), error) {
		b := newBound(t)
		arm()
		_, err := l.Engine.Save(t.Context(), b.id, b.image)
		return func() { noImage(t, b.image); b.asBefore(t) }, err
	},
	"pause": func(t *testing.T, arm func()) (func(), error) {
		b := newBound(t)
		arm()
		_, err := l.Engine.Pause(t.Context(), b.id, b.image, cube.Pausing{})
		return func() { noImage(t, b.image); b.asBefore(t) }, err
	},
	"clone": func(t *testing.T, arm func()) (func(), error) {
		b := newBound(t)
		ids := []cube.SandboxID{cube.NewSandboxID(), cube.NewSandboxID(), cube.NewSandboxID()}
		arm()
		_, err := l.Engine.Clone(t.Context(), b.id, []cube.CreateSpec{{ID: ids[0]}, {ID: ids[1]}, {ID: ids[2]}}, 0)
		return func() { noSandbox(t, ids...); b.asBefore(t) }, err
	},
	"rollback": func(t *testing.T, arm func()) (func(), error) {
		b := newBound(t)
		image := save(t, b.id)
		arm()
		_, err := l.Engine.Rollback(t.Context(), b.id, image)
		return func() { b.asBefore(t) }, err
	},
	"kill": func(t *testing.T, arm func()) (func(), error) {
		b := newBound(t)
		arm()
		return func() { b.asBefore(t) }, l.Engine.Kill(t.Context(), b.id)
	},
}

// beyond are the boundaries behind a verb's point of no return.
var beyond = map[string]bool{
	"engine/pause/ended": true, "engine/kill/ended": true,
	"engine/rollback/switched": true, "engine/rollback/buried": true,
}

// TestAVerbThatFailsAtAnyBoundaryIsUndone: whichever step of a verb is the last one,
// the sandbox is as it was, in the same life and with its connections, and nothing
// new is there. Behind the point of no return the verb completes.
func TestAVerbThatFailsAtAnyBoundaryIsUndone(t *testing.T) {
	places := 0
	for _, name := range failpoint.Names() {
		part, verb, _ := strings.Cut(name, "/")
		verb, what, _ := strings.Cut(verb, "/")
		if part != "engine" || elsewhere[name] {
			continue
		}
		places++
		t.Run(verb+" fails when it has "+what, func(t *testing.T) {
			do := boundaries[verb]
			if do == nil {
				t.Fatalf("nothing says how to do %s", verb)
			}
			l.Guard(t)
			t.Cleanup(func() { failpoint.Arm("") })
			undone, failed := do(t, func() { noError(t, failpoint.Arm(name+"=error(here)"), "arm") })
			noError(t, failpoint.Arm(""), "disarm")
			if beyond[name] {
				if failed != nil || !tooLate(t, name) {
					t.Errorf("behind the point of no return: got %v; it has passed %s: %v", failed, name, tooLate(t, name))
				}
				return
			}
			if !errors.Is(failed, failpoint.ErrInjected) {
				t.Fatalf("got %v, want the error of %s", failed, name)
			}
			undone()
		})
	}
	if places < 17 {
		t.Errorf("%d places were passed", places)
	}
}

// elsewhere are places that other tests of this package pass.
var elsewhere = map[string]bool{"engine/create/files-sent": true}

// tooLate reports whether the log has that a place was passed when it was too late.
func tooLate(t *testing.T, place string) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(l.Options().RunDir, "engine.log"))
	noError(t, err, "the log")
	return strings.Contains(string(b), "too late to fail") && strings.Contains(string(b), place)
}

// pauserEnv has this program pause the sandbox that it describes, and be killed
// somewhere on the way.
const pauserEnv = "CUBE_E2E_PAUSER"

type pauser struct {
	Options local.Options
	Sandbox cube.SandboxID
	Image   cube.ImageID
	At      string // what has it be killed
}

func pauseAndDie() int {
	var p pauser
	err := json.Unmarshal([]byte(os.Getenv(pauserEnv)), &p)
	if err == nil {
		err = failpoint.Arm(p.At)
	}
	if err == nil {
		err = p.pause()
	}
	fmt.Fprintln(os.Stderr, "pauser:", err)
	return 1
}

func (p pauser) pause() error {
	s, err := local.Open(context.Background(), p.Options)
	if err != nil {
		return err
	}
	_, err = s.Engine.Pause(context.Background(), p.Sandbox, p.Image, cube.Pausing{})
	return err
}

// published has a server be killed when it has published the image of a pause, and its
// frozen sandbox still is there.
const published = "engine/pause/published=kill"

// diePausing has a server be killed somewhere in a pause of a sandbox, in which
// something is done before.
func diePausing(t *testing.T, at, before string) *bound {
	t.Helper()
	b := newBound(t)
	sh(t, b.id, before)
	noError(t, l.Close(), "close the engine")
	js, err := json.Marshal(pauser{l.Options(), b.id, b.image, at})
	noError(t, err, "describe it")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), pauserEnv+"="+string(js))
	cmd.Stderr = os.Stderr
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the server ended with %v, want to be killed", err)
	}
	return b
}

func TestAPauseThatWasPublishedIsCompletedByTheNextServer(t *testing.T) {
	l.Guard(t)
	b := diePausing(t, published, "true")
	// As if the power had been cut before: the next one makes up for it.
	noError(t, os.Remove(filepath.Join(l.Images.Dir(b.image), "durable")), "the mark of a durable image")
	noError(t, l.Take(t.Context()), "open the engine again")
	noSandbox(t, b.id)
	img, err := l.Images.Image(b.image)
	if err != nil || !img.Durable || img.Source != b.id || img.Generation != b.state.Generation {
		t.Fatalf("the image: got %+v, %v; want that of generation %d of %s, durable", img, err, b.state.Generation, b.id)
	}
	_, err = l.Engine.Resume(t.Context(), cube.CreateSpec{ID: b.id, Image: b.image, Generation: 2})
	noError(t, err, "resume")
	if got := l.Check(t, b.id); got.Identity != b.life.Identity || got.Uses != b.life.Uses+1 {
		t.Errorf("got %+v after %+v", got, b.life)
	}
}

// TestAnImageThatIsNotWholeCostsNoFrozenSandbox: where the image of a pause turns out
// bad before the sandbox is ended for it, the sandbox goes on.
func TestAnImageThatIsNotWholeCostsNoFrozenSandbox(t *testing.T) {
	l.Guard(t)
	b := diePausing(t, published, "true")
	l.Alter(t, b.image)
	noError(t, l.Take(t.Context()), "open the engine again")
	b.asBefore(t)
	noImage(t, b.image)
}
