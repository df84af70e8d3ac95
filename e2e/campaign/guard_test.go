package campaign

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
	"cubesandbox/e2e/leak"
)

// guard fails a test for what it leaves: sandboxes and snapshots are taken away, and
// then all is to be as it was before.
func guard(t *testing.T) {
	t.Helper()
	before, err := steady()
	if err != nil {
		t.Fatal(err)
	}
	// How many connections a server keeps open to be quick is its own matter.
	delete(before["descriptor"], networkSocket)
	t.Cleanup(func() {
		err := errors.Join(clearAll(context.WithoutCancel(t.Context())), left(before, networkSocket))
		if err != nil {
			t.Error(err)
		}
	})
}

const networkSocket = "of cube-network: socket"

func clearAll(ctx context.Context) error {
	boxes, err := users.List(ctx, client.Query{})
	errs := []error{err}
	for _, b := range boxes {
		errs = append(errs, gone(users.Kill(ctx, b.ID)))
	}
	snaps, err := users.Snapshots(ctx, "")
	errs = append(errs, err)
	for _, snap := range snaps {
		errs = append(errs, gone(users.DeleteImage(ctx, string(snap.ID))))
	}
	return errors.Join(append(errs, settled(ctx), tidy(ctx))...)
}

// ours is what of ours is on the machine, but for what this test and a server hold
// themselves.
func ours() (leak.State, error) {
	users.Close() // a kept connection is one in cube-network too
	now, err := leak.Take(s.Where)
	if err != nil {
		return nil, err
	}
	delete(now, "goroutine")
	for kind, drop := range map[string]func(string) bool{
		"descriptor": func(line string) bool {
			return strings.HasPrefix(line, "of this test:") || strings.HasPrefix(line, "of cube:")
		},
		// That an image was read whole in this boot of the machine is noted in it.
		"file": func(line string) bool { return strings.HasSuffix(line, "/verified") },
	} {
		maps.DeleteFunc(now[kind], func(line string, _ int) bool { return drop(line) })
	}
	return now, nil
}

// steady is what is there when nothing has come or gone for a while.
func steady() (last leak.State, err error) {
	since := time.Now()
	err = lab.Until(20*time.Second, "nothing comes or goes", func() error {
		now, err := ours()
		if err != nil {
			return err
		}
		if diff := append(leak.Diff(last, now), leak.Diff(now, last)...); len(diff) > 0 {
			last, since = now, time.Now()
		}
		if time.Since(since) < quietTime {
			return errors.New("something does")
		}
		return nil
	})
	return last, err
}

// left fails for what is there now and was not before, and for what is not there any
// more, but for descriptors of some kinds.
func left(before leak.State, but ...string) error {
	return lab.Until(5*time.Second, "all is as it was", func() error {
		now, err := ours()
		if err != nil {
			return err
		}
		for _, line := range but {
			delete(now["descriptor"], line)
		}
		if diff := leak.Diff(before, now); len(diff) > 0 {
			return errors.New(strings.Join(diff, "\n"))
		}
		return nil
	})
}
