package abuse

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/envdpb/filesystem/filesystemconnect"

	"connectrpc.com/connect"
)

// within is how long an answer may take, on a machine that does much else: the agent's own
// time is a second.
const within = 10 * time.Second

// ask has the agent of a sandbox say that it is well, start a program and look at a file.
func ask(ctx context.Context, b client.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err != nil {
		return err
	}
	if err := g.Health(ctx); err != nil {
		return err
	}
	if _, err := g.Run(ctx, client.Command{Argv: []string{"/bin/true"}, User: "root"}); err != nil {
		return err
	}
	files := filesystemconnect.NewFilesystemClient(&http.Client{Transport: g}, "http://"+s.State.Data)
	look := connect.NewRequest(&filesystem.StatRequest{Path: "/"})
	look.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("root:")))
	if _, err := files.Stat(ctx, look); err != nil {
		return fmt.Errorf("look at its /: %w", err)
	}
	return nil
}

// beside makes another sandbox, that is asked for as long as the test lasts: it answers
// every time.
func beside(t *testing.T) {
	t.Helper()
	b, err := s.API.Create(t.Context(), client.NewSandbox{Template: template})
	noError(t, err, "make the sandbox beside")
	ctx, stop := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	asked, slowest := 0, time.Duration(0)
	asking.Go(func() {
		pace := time.NewTicker(100 * time.Millisecond)
		defer pace.Stop()
		for ctx.Err() == nil {
			began := time.Now()
			if err := ask(ctx, b); err != nil && ctx.Err() == nil {
				t.Errorf("the sandbox beside, asked for the %dth time: %v", asked+1, err)
			}
			asked, slowest = asked+1, max(slowest, time.Since(began))
			select {
			case <-pace.C:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		stop()
		asking.Wait()
		t.Logf("the sandbox beside has answered %d times, after %v at most", asked, slowest)
		if asked < 2 {
			t.Errorf("the sandbox beside was asked %d times", asked)
		}
	})
}

func noError(t *testing.T, err error, doing string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v\nthe server has said:\n%s", doing, err, s.Warnings(5))
	}
}

// get is what the server says of a sandbox.
func get(t *testing.T, id cube.SandboxID) client.Sandbox {
	t.Helper()
	b, err := s.API.Get(t.Context(), id)
	noError(t, err, "look at it")
	return b
}
