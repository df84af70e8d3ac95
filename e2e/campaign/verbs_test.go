package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// verb is what is struck.
type verb struct {
	name string
	// prepare makes what it needs.
	prepare func(context.Context, *subject) error
	// do asks for it, once.
	do func(context.Context, *subject) error
	// settle, unless nil, waits for what it goes on to do after its answer.
	settle func(context.Context, *subject) error
	// after finds out whether the verb has happened, fails for what is neither the old
	// state nor the new or is not whole, asks for the verb again, and fails unless it
	// has happened then.
	after func(context.Context, *subject) (happened bool, err error)
}

// verbs are all that there are, or those whose name CUBE_VERB fits.
func verbs() []verb {
	only := regexp.MustCompile(os.Getenv("CUBE_VERB"))
	return slices.DeleteFunc(allVerbs(), func(v verb) bool { return !only.MatchString(v.name) })
}

func allVerbs() []verb {
	return slices.Concat(makers(), sleepers(), []verb{
		{"rollback", running(saved), doRollback, nil, afterRollback},
		{"kill", running(nil), doKill, nil, afterKill},
		{"kill of a paused one", paused, doKill, nil, afterKill},
		{"delete of a snapshot", running(saved), doDelete, nil, afterDelete},
		{"recover", running(died), doRecover, nil, afterRecover},
	})
}

// running begins a subject and goes on with it.
func running(then func(context.Context, *subject) error) func(context.Context, *subject) error {
	return func(ctx context.Context, u *subject) error {
		if err := u.begin(ctx, client.NewSandbox{}); err != nil || then == nil {
			return err
		}
		return then(ctx, u)
	}
}

func saved(ctx context.Context, u *subject) error { return u.save(ctx) }

// died: its kernel was killed after a snapshot, and the service has seen it.
func died(ctx context.Context, u *subject) error {
	if err := u.save(ctx); err != nil {
		return err
	}
	return killSentry(ctx, u.box.ID)
}

func killSentry(ctx context.Context, id cube.SandboxID) error {
	if err := s.KillSentry(ctx, id); err != nil {
		return err
	}
	return lab.Until(10*time.Second, "the service sees the end", func() error {
		if _, err := users.Get(ctx, id); !errors.Is(err, cube.ErrNotFound) {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
}

func doRollback(ctx context.Context, u *subject) error {
	return users.Rollback(ctx, u.box.ID, string(u.snap.ID))
}

func afterRollback(ctx context.Context, u *subject) (bool, error) {
	happened := u.is(ctx, u.box.ID, older) == nil
	if err := u.is(ctx, u.box.ID, newer); !happened && err != nil {
		return false, err
	}
	if u.answered && !happened {
		return false, errors.New("it was answered, and the state is the one before")
	}
	if err := doRollback(ctx, u); err != nil {
		return happened, err
	}
	return happened, u.is(ctx, u.box.ID, older)
}

func doKill(ctx context.Context, u *subject) error { return users.Kill(ctx, u.box.ID) }

func afterKill(ctx context.Context, u *subject) (bool, error) {
	_, err := u.awake(ctx)
	happened := errors.Is(err, cube.ErrNotFound)
	switch {
	case !happened && err != nil:
		return false, err
	case !happened && u.answered:
		return false, errors.New("it was answered, and the sandbox is there")
	case !happened:
		if err := u.is(ctx, u.box.ID, older); err != nil {
			return false, err
		}
	}
	if err := gone(doKill(ctx, u)); err != nil {
		return happened, err
	}
	if _, err := users.Get(ctx, u.box.ID); !errors.Is(err, cube.ErrNotFound) {
		return happened, fmt.Errorf("after the kill, get gives %w", err)
	}
	e, err := endedBox(ctx, u.box.ID)
	if err == nil && (e.Reason != string(cube.DeathKilled) || e.Recoverable) {
		err = fmt.Errorf("it was killed, and is listed as %+v", e)
	}
	return happened, err
}

func doDelete(ctx context.Context, u *subject) error {
	return users.DeleteImage(ctx, string(u.snap.ID))
}

func afterDelete(ctx context.Context, u *subject) (bool, error) {
	err := verify(ctx, u.snap.ID)
	happened := errors.Is(err, cube.ErrNotFound)
	switch {
	case !happened && err != nil:
		return false, err
	case !happened && u.answered:
		return false, errors.New("it was answered, and the snapshot is there")
	case !happened:
		if err := doRollback(ctx, u); err != nil {
			return false, fmt.Errorf("the snapshot is there, and cannot be used: %w", err)
		}
		if err := u.is(ctx, u.box.ID, older); err != nil {
			return false, err
		}
	default:
		if err := u.is(ctx, u.box.ID, newer); err != nil {
			return true, err
		}
	}
	if err := gone(doDelete(ctx, u)); err != nil {
		return happened, err
	}
	if err := verify(ctx, u.snap.ID); !errors.Is(err, cube.ErrNotFound) {
		return happened, fmt.Errorf("after the delete, it is there: %w", err)
	}
	return happened, nil
}

func doRecover(ctx context.Context, u *subject) error {
	_, err := recoverBox(ctx, u.box.ID)
	return err
}

func afterRecover(ctx context.Context, u *subject) (bool, error) {
	_, err := users.Get(ctx, u.box.ID)
	happened := err == nil
	if !happened {
		if !errors.Is(err, cube.ErrNotFound) || u.answered {
			return false, err
		}
		if e, err := endedBox(ctx, u.box.ID); err != nil || !e.Recoverable || e.Snapshot != u.snap.ID {
			return false, fmt.Errorf("it is not offered for recovery: %+v (%w)", e, err)
		}
		if err := doRecover(ctx, u); err != nil {
			return false, err
		}
	}
	if b, err := users.Get(ctx, u.box.ID); err != nil || b.AccessToken != u.box.AccessToken {
		return happened, fmt.Errorf("it has another access token (%w)", err)
	}
	return happened, u.is(ctx, u.box.ID, older)
}
