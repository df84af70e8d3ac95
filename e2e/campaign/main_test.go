package campaign

import (
	"context"
	"errors"
	"os"
	"testing"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// s is the server of all tests in this package; it is killed and started many times.
var s *lab.Server

// users is a client that is kept through all of that: each server has the addresses
// and the key that the first had.
var (
	users    *client.Client
	api, key string
)

func TestMain(m *testing.M) {
	os.Exit(lab.Main(m, &s, ready, "TestNothingIsLostWhereverTheServerIsKilled", "TestALostAnswerIsAskedForAgainWithTheSameKey",
		"TestAKeyIsGoodForOneRequest", "TestWhatDiedIsReportedAndRecovered", "TestWhatIsToBeRecoveredByItselfIs"))
}

func ready(ctx context.Context) (err error) {
	api, key = s.State.API, s.Key
	users, err = client.New(client.Options{APIURL: "http://" + api, SandboxURL: "http://" + s.State.Data, Key: key})
	if err != nil {
		return err
	}
	return warm(ctx)
}

// warm uses everything once, so that what is opened at first use looks like no leak.
func warm(ctx context.Context) error {
	b, err := users.Create(ctx, client.NewSandbox{Template: "base"})
	if err != nil {
		return err
	}
	return errors.Join(startWitness(ctx, b, 1), users.Kill(ctx, b.ID))
}

func create(t *testing.T, n client.NewSandbox) client.Sandbox {
	t.Helper()
	if n.Template == "" {
		n.Template = "base"
	}
	b, err := users.Create(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
