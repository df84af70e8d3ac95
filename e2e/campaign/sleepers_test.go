package campaign

import (
	"context"
	"errors"
	"fmt"

	cube "cubesandbox"
	"cubesandbox/client"
)

// sleepers are the verbs that put a sandbox away and bring it back.
func sleepers() []verb {
	return []verb{
		{"pause", running(nil), doPause, nil, afterPause},
		{"pause to files only", running(nil), doPauseFiles, nil, afterPauseFiles},
		{"pause at a timeout", runningSleeper, doTimeout, nil, afterTimeout},
		{"resume", paused, doResume, nil, afterResume},
		{"resume of files", pausedFiles, doResume, nil, afterResumeFiles},
		{"resume by traffic", pausedSleeper, doWake, nil, afterResume},
	}
}

func doPause(ctx context.Context, u *subject) error { return users.Pause(ctx, u.box.ID) }

func afterPause(ctx context.Context, u *subject) (bool, error) {
	happened, err := u.awake(ctx)
	if err == nil && u.answered && !happened {
		err = errors.New("it was answered, and the sandbox runs")
	}
	if err != nil {
		return happened, err
	}
	if err := u.is(ctx, u.box.ID, older); err != nil {
		return happened, err
	}
	if err := doPause(ctx, u); err != nil {
		return happened, fmt.Errorf("paused once more: %w", err)
	}
	if _, err := u.awake(ctx); err != nil {
		return happened, err
	}
	return happened, u.is(ctx, u.box.ID, older)
}

func doPauseFiles(ctx context.Context, u *subject) error { return pauseFilesOnly(ctx, u.box.ID) }

func afterPauseFiles(ctx context.Context, u *subject) (bool, error) {
	happened, err := u.awake(ctx)
	if err == nil && u.answered && !happened {
		err = errors.New("it was answered, and the sandbox runs")
	}
	if err != nil {
		return happened, err
	}
	if !happened {
		if err := u.is(ctx, u.box.ID, older); err != nil {
			return false, err
		}
		if err := errors.Join(doPauseFiles(ctx, u), doResume(ctx, u)); err != nil {
			return false, err
		}
	}
	return happened, u.files(ctx, older)
}

func doTimeout(ctx context.Context, u *subject) error {
	if err := call(ctx, request{"POST", "/sandboxes/" + string(u.box.ID) + "/timeout", "", map[string]int{"timeout": 1}}, nil); err != nil {
		return err
	}
	return u.asleep(ctx)
}

// afterTimeout: a server that died before it had noted the timeout leaves it running;
// else it is paused, at the latest by the next server.
func afterTimeout(ctx context.Context, u *subject) (bool, error) {
	b, err := users.Get(ctx, u.box.ID)
	if err != nil {
		return false, err
	}
	happened := b.State == "paused"
	if b.EndAt == nil && !happened {
		if err := doTimeout(ctx, u); err != nil {
			return happened, err
		}
	}
	if err := u.asleep(ctx); err != nil {
		return happened, err
	}
	if _, err := users.Connect(ctx, u.box.ID, cube.NeverTimeout); err != nil {
		return happened, err
	}
	return happened, u.is(ctx, u.box.ID, older)
}

// sleeper is paused when its time is over.
var sleeper = client.NewSandbox{OnTimeout: cube.OnTimeoutPause, AutoResume: true}

func runningSleeper(ctx context.Context, u *subject) error { return u.begin(ctx, sleeper) }

func paused(ctx context.Context, u *subject) error {
	return errors.Join(u.begin(ctx, client.NewSandbox{}), doPause(ctx, u))
}

func pausedFiles(ctx context.Context, u *subject) error {
	return errors.Join(u.begin(ctx, client.NewSandbox{}), doPauseFiles(ctx, u))
}

func pausedSleeper(ctx context.Context, u *subject) error {
	return errors.Join(u.begin(ctx, sleeper), doPause(ctx, u))
}

func doResume(ctx context.Context, u *subject) error {
	_, err := users.Resume(ctx, u.box.ID, 0)
	return err
}

// doWake: the witness answers a request that came while it was paused.
func doWake(ctx context.Context, u *subject) error { return u.is(ctx, u.box.ID, older) }

func afterResume(ctx context.Context, u *subject) (bool, error) {
	stillPaused, err := u.awake(ctx)
	if err == nil && u.answered && stillPaused {
		err = errors.New("it was answered, and the sandbox is paused")
	}
	if err != nil {
		return !stillPaused, err
	}
	return !stillPaused, u.is(ctx, u.box.ID, older)
}

func afterResumeFiles(ctx context.Context, u *subject) (bool, error) {
	stillPaused, err := u.awake(ctx)
	if err == nil && u.answered && stillPaused {
		err = errors.New("it was answered, and the sandbox is paused")
	}
	if err != nil {
		return !stillPaused, err
	}
	return !stillPaused, u.files(ctx, older)
}
