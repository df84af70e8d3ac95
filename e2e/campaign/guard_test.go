package campaign

import (
	"context"
	"errors"
	"regexp"
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
	for kind, lines := range now {
		same := map[string]int{}
		for line, n := range lines {
			if line, ok := anonymous(kind, line); ok {
				same[line] += n
			}
		}
		now[kind] = same
	}
	return now, nil
}

var (
	// A sandbox may get another life.
	life = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	// Files without a name have the number of their inode.
	inode = regexp.MustCompile(`#\d+ \(deleted\)`)
)

// anonymous makes the lines of two lives the same, and leaves out what comes and goes.
func anonymous(kind, line string) (string, bool) {
	switch {
	case kind == "descriptor" && (strings.HasPrefix(line, "of this test:") || strings.HasPrefix(line, "of cube:")):
		return "", false
	case kind == "process" && line == "[exe]": // a sentry has some, which end with it
		return "", false
	case kind == "process" && strings.HasPrefix(line, "runsc-sandbox "):
		return "runsc-sandbox", true // its flags are in any order
	case kind == "file" && strings.HasSuffix(line, "/verified"): // noted once a boot of the machine
		return "", false
	}
	return inode.ReplaceAllString(life.ReplaceAllString(line, "LIFE"), "INODE"), true
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
