package gvisor

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"cubesandbox/gvisor/keeperapi"
)

// TestASaveLastsAsLongAsItWrites: however long that is; one whose files do not grow for
// a minute is given up.
func TestASaveLastsAsLongAsItWrites(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "pages"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	synctest.Test(t, func(t *testing.T) {
		asked, goAway := context.WithCancel(t.Context())
		ctx, cancel, err := bound(asked, keeperapi.MethodSave, []*os.File{f})
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		goAway() // the keeper carries it out all the same
		for i := range 10 {
			if err := f.Truncate(int64(i+1) << 20); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ctx.Done():
				t.Fatalf("a save that writes is given up after %d × 50 s: %v", i, context.Cause(ctx))
			case <-time.After(50 * time.Second):
			}
		}
		began := time.Now()
		select {
		case <-ctx.Done():
		case <-time.After(time.Hour):
		}
		if took := time.Since(began); took > stillTime {
			t.Errorf("a save that has stopped writing is given up after another %v, want %v at most", took, stillTime)
		}
		if got, want := context.Cause(ctx).Error(), "has written nothing for 1m0s"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestEveryRequestThatAsksNoSentryIsBounded(t *testing.T) {
	for method, want := range map[string]time.Duration{
		keeperapi.MethodInfo: answerTime, keeperapi.MethodList: answerTime, keeperapi.MethodKill: requestTime,
		keeperapi.MethodLabel: requestTime, keeperapi.MethodResume: requestTime, keeperapi.MethodShutdown: requestTime,
	} {
		ctx, cancel, err := bound(t.Context(), method, nil)
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := ctx.Deadline(); !ok || time.Until(at) > want {
			t.Errorf("%s: until %v (%v), want %v at most", method, at, ok, want)
		}
		cancel()
	}
}
