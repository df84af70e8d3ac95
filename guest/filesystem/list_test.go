package filesystem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"

	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/users"

	"connectrpc.com/connect"
)

// few is direct for so many at a time as there are slots, and tells of each that has
// ended.
type few struct {
	direct
	slots chan struct{}
	ended chan error
}

func (f few) Do(ctx context.Context, name string, do func(users.User) error) error {
	select {
	case f.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := f.direct.Do(ctx, name, do)
	<-f.slots
	f.ended <- err
	return err
}

// TestLongListsWaitForEachOtherAndNobodyForThem: more of them than there are slots.
func TestLongListsWaitForEachOtherAndNobodyForThem(t *testing.T) {
	const listers, entries = 40, longList + 1
	home := t.TempDir()
	for i := range entries {
		if err := os.Mkdir(fmt.Sprintf("%s/%04d", home, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	runner := few{direct{home}, make(chan struct{}, 32), make(chan error, 3*listers)}
	s := &Service{Runner: runner, User: func(http.Header) string { return "user" }}
	ctx := patience(t)
	list := func(ctx context.Context) error {
		res, err := s.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: "."}))
		if err == nil && len(res.Msg.Entries) != entries {
			err = fmt.Errorf("%d entries are listed", len(res.Msg.Entries))
		}
		return err
	}
	if err := s.long.enter(ctx); err != nil { // one is under way
		t.Fatal(err)
	}
	impatient, giveUp := context.WithCancel(ctx)
	lists, gaveUp := make(chan error, listers), make(chan error, 1)
	go func() { gaveUp <- list(impatient) }()
	for range listers {
		go func() { lists <- list(ctx) }()
	}
	for i := range listers + 1 {
		select {
		case err := <-runner.ended:
			if !errors.Is(err, errLong) {
				t.Errorf("a list ended with %v", err)
			}
		case <-ctx.Done():
			t.Fatalf("%d lists hold no slot, want %d", i, listers+1)
		}
	}
	if _, err := s.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: "0000"})); err != nil {
		t.Errorf("a look beside: %v", err)
	}
	giveUp()
	if err := <-gaveUp; connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("who gave up got %v", err)
	}
	s.long.leave()
	for range listers {
		if err := <-lists; err != nil {
			t.Error(err)
		}
	}
	if !s.long.try() {
		t.Error("the gate was left closed")
	}
}
