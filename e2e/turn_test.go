package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
)

func TestKillOfTheKeeperInAPauseLosesNothing(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	before := l.Check(t, id)
	keeper, err := l.Keeper(t.Context())
	noError(t, err, "find the keeper")
	life, err := l.Life(t.Context(), id)
	noError(t, err, "find the sentry")
	// A sentry that is stopped gets the request and cannot answer.
	noError(t, syscall.Kill(life.PID, syscall.SIGSTOP), "stop the sentry")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	paused := make(chan error, 1)
	go func() {
		_, err := l.Engine.Pause(ctx, id, cube.NewSnapshotID(), cube.Pausing{})
		paused <- err
	}()
	noError(t, lab.Until(10*time.Second, "the request is on its way", func() error {
		b, err := os.ReadFile(filepath.Join(l.Options().RunDir, "lives", life.Life, "record.json"))
		if err == nil && !strings.Contains(string(b), `"turning": true`) {
			err = errors.New("the keeper has not asked for the pause")
		}
		return err
	}), "pause")
	noError(t, lab.KillHard(keeper), "kill the keeper")
	noError(t, syscall.Kill(life.PID, syscall.SIGCONT), "let the sentry run")
	if err := <-paused; err == nil {
		t.Error("the pause succeeded without a keeper")
	}
	again(t, "the sandbox can be used", func(ctx context.Context) error {
		_, err := lab.Get(ctx, l.Engine, id, "k")
		return err
	})
	if got := l.Check(t, id); got.Identity != before.Identity {
		t.Errorf("got %+v, want the life from before, %+v", got, before)
	}
	// It may just be getting another life, if it had to.
	again(t, "the sandbox can be saved", func(ctx context.Context) error {
		_, err := l.Engine.Save(ctx, id, cube.NewSnapshotID())
		return err
	})
}
