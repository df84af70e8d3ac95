package campaign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	err := lab.Until(20*time.Second, what, func() error {
		if ok() {
			return nil
		}
		return errors.New("still not")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// boxOf makes the sandbox of a case.
func boxOf(t *testing.T, u *subject) client.Sandbox {
	t.Helper()
	return create(t, client.NewSandbox{Metadata: map[string]string{"case": u.tag}, Timeout: cube.NeverTimeout})
}

// savedAndDead makes a sandbox with a witness, saves it, goes on, and kills its kernel.
func savedAndDead(t *testing.T) (u *subject, before held) {
	t.Helper()
	ctx := t.Context()
	u = &subject{tag: tag()}
	u.box = boxOf(t, u)
	if err := startWitness(ctx, u.box, 4); err != nil {
		t.Fatal(err)
	}
	if err := u.set(ctx, older); err != nil {
		t.Fatal(err)
	}
	u.before = whole(t, u.box.ID)
	if err := u.save(ctx); err != nil {
		t.Fatal(err)
	}
	before = whole(t, u.box.ID)
	if err := killSentry(ctx, u.box.ID); err != nil {
		t.Fatal(err)
	}
	return u, before
}

// TestWhatDiedIsReportedAndRecovered: who asks for it hears why it ended and how to
// bring it back; `cube sandbox recover` does so, under the same id, with the same
// tokens, in the state of its last snapshot.
func TestWhatDiedIsReportedAndRecovered(t *testing.T) {
	guard(t)
	ctx := t.Context()
	u, _ := savedAndDead(t)
	id := string(u.box.ID)
	_, err := users.Get(ctx, u.box.ID)
	for _, want := range []string{"signal", string(u.snap.ID), "cube sandbox recover " + id} {
		if !errors.Is(err, cube.ErrNotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("get says %v; want it to name %q", err, want)
		}
	}
	if e, err := endedBox(ctx, u.box.ID); err != nil || e.Reason != string(cube.DeathSignal) || !e.Recoverable || e.Snapshot != u.snap.ID {
		t.Errorf("it is listed as %+v (%v), want it ended by a signal, with the snapshot %s", e, err, u.snap.ID)
	}
	var said bytes.Buffer
	cmd := s.Command("sandbox", "recover", id)
	cmd.Env = append(cmd.Environ(), s.Env()...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("cube sandbox recover: %v: %s", err, said.String())
	}
	got, err := users.Get(ctx, u.box.ID)
	if err != nil || got.State != "running" || got.AccessToken != u.box.AccessToken {
		t.Fatalf("it is %+v (%v), want it to run, with its token", got, err)
	}
	if err := u.is(ctx, u.box.ID, older); err != nil {
		t.Error(err)
	}
	if _, err := sh(ctx, u.box, "true"); err != nil {
		t.Errorf("with the token that its user has: %v", err)
	}
	if _, err := endedBox(ctx, u.box.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("it runs, and is listed as ended (%v)", err)
	}
	if _, err := recoverBox(ctx, u.box.ID); !errors.Is(err, cube.ErrConflict) {
		t.Errorf("recovering what runs: %v, want a conflict", err)
	}
}

// TestThereIsNoWayBackForWhatWasKilledOrNeverSaved: both are 404 with the reason.
func TestThereIsNoWayBackForWhatWasKilledOrNeverSaved(t *testing.T) {
	guard(t)
	ctx := t.Context()
	unsaved, killed := create(t, client.NewSandbox{}), create(t, client.NewSandbox{})
	if _, err := snapshotKeyed(ctx, "", killed.ID, ""); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(killSentry(ctx, unsaved.ID), users.Kill(ctx, killed.ID)); err != nil {
		t.Fatal(err)
	}
	for what, b := range map[string]client.Sandbox{"signal": unsaved, "killed": killed} {
		if _, err := recoverBox(ctx, b.ID); !errors.Is(err, cube.ErrNotFound) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v, want not found with the reason", what, err)
		}
		if e, err := endedBox(ctx, b.ID); err != nil || e.Recoverable || e.Reason != what {
			t.Errorf("%s: it is listed as %+v (%v)", what, e, err)
		}
	}
}

// autoRecovered makes one that is recovered by itself, saved.
func autoRecovered(t *testing.T) *subject {
	t.Helper()
	ctx := t.Context()
	u := &subject{tag: tag()}
	var err error
	u.box, err = createKeyed(ctx, "", newBox{Template: "base", Timeout: -1, Metadata: map[string]string{"case": u.tag}, AutoRecover: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(startWitness(ctx, u.box, 4), u.set(ctx, older)); err != nil {
		t.Fatal(err)
	}
	u.before = whole(t, u.box.ID)
	if err := u.save(ctx); err != nil {
		t.Fatal(err)
	}
	return u
}

// back waits until it runs in another life than the one that was killed.
func (u *subject) back(ctx context.Context, dead string) error {
	return lab.Until(20*time.Second, "it is back by itself", func() error {
		life, err := s.Life(ctx, u.box.ID)
		if err == nil && string(life.Life) == dead {
			err = errors.New("it is the life that was killed")
		}
		if err != nil {
			return err
		}
		b, err := users.Get(ctx, u.box.ID)
		if err == nil && b.State != "running" {
			err = fmt.Errorf("its state is %q", b.State)
		}
		return err
	})
}

// TestWhatIsToBeRecoveredByItselfIs: with autoRecover at create.
func TestWhatIsToBeRecoveredByItselfIs(t *testing.T) {
	guard(t)
	ctx := t.Context()
	u := autoRecovered(t)
	life, err := s.Life(ctx, u.box.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.KillSentry(ctx, u.box.ID); err != nil {
		t.Fatal(err)
	}
	if err := u.back(ctx, string(life.Life)); err != nil {
		t.Fatal(err)
	}
	if err := u.is(ctx, u.box.ID, older); err != nil {
		t.Error(err)
	}
}

// TestOneThatDiesAgainAndAgainIsNotRecoveredForever: it stays ended, and can still be
// recovered by hand.
func TestOneThatDiesAgainAndAgainIsNotRecoveredForever(t *testing.T) {
	guard(t)
	ctx := t.Context()
	u := autoRecovered(t)
	const enough = 10
	deaths := 0
	for ; deaths < enough; deaths++ {
		life, err := s.Life(ctx, u.box.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.KillSentry(ctx, u.box.ID); err != nil {
			t.Fatal(err)
		}
		stays := false
		err = lab.Until(20*time.Second, "it is back, or stays ended", func() error {
			if e, err := endedBox(ctx, u.box.ID); err == nil && e.Recoverable && !e.Returning {
				stays = true
				return nil
			}
			now, err := s.Life(ctx, u.box.ID)
			if err == nil && now.Life == life.Life {
				err = errors.New("it is the life that was killed")
			}
			if err == nil {
				_, err = users.Get(ctx, u.box.ID)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if stays {
			break
		}
	}
	if deaths == 0 || deaths == enough {
		t.Errorf("it was recovered after %d of %d deaths in a row; want it after some, and then no more", deaths, enough)
	}
	if _, err := recoverBox(ctx, u.box.ID); err != nil {
		t.Fatal(err)
	}
	if err := u.is(ctx, u.box.ID, older); err != nil {
		t.Error(err)
	}
}
