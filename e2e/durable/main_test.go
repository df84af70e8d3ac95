package durable

import (
	"context"
	"os"
	"testing"
	"time"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// s is the server of the tests that cut nobody's power.
var s *lab.Server

func TestMain(m *testing.M) {
	os.Exit(lab.Main(m, &s, warm, "TestAPowerCutLosesNothingThatWasAnswered", "TestADamagedSnapshotIsRefusedAndTheSandboxAnswersAsBefore",
		"TestWhoseMemoryIsDamagedComesBackFromItsFiles", "TestADeletedParentIsFreedWithItsLastChild"))
}

// warm uses everything once, so that what is opened at first use looks like no leak.
func warm(ctx context.Context) error {
	b, err := s.API.Create(ctx, client.NewSandbox{Template: "base"})
	if err != nil {
		return err
	}
	if _, err := (inside{s, b}).run(ctx, "/bin/true"); err != nil {
		return err
	}
	if err := s.API.Kill(ctx, b.ID); err != nil {
		return err
	}
	if _, err := buildTemplate(s, "base"); err != nil { // which is there
		return err
	}
	_, err = s.API.VerifyImage(ctx, "base") // that it was read is noted beside it
	return err
}

// witnessed makes a sandbox with a witness in it, and says how that is.
func witnessed(t *testing.T, s *lab.Server, n client.NewSandbox) (inside, state) {
	t.Helper()
	n.Template = "base"
	b, err := s.API.Create(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	in := inside{s, b}
	if err := in.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return in, in.now(t)
}

// now is the state of the witness.
func (in inside) now(t *testing.T) state {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	defer cancel()
	st, err := in.state(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// same fails the test where the witness is not in that state.
func (in inside) same(t *testing.T, want state) {
	t.Helper()
	if got := in.now(t); got != want {
		t.Errorf("the witness in %s:\ngot  %+v\nwant %+v", in.b.ID, got, want)
	}
}

// answerTime bounds how long anything in a sandbox may take to answer.
const answerTime = 20 * time.Second
