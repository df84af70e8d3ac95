package realworld

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// TestASaveThatCannotBeIsRefusedAndNamesProcessAndFile: a program has a network device of its
// own, which cannot be saved. Snapshot, pause and clone are refused with the process and the
// file; the program and all others go on, and when it has ended the sandbox is saved.
func TestASaveThatCannotBeIsRefusedAndNamesProcessAndFile(t *testing.T) {
	s.Guard(t)
	ctx := t.Context()
	b, err := s.API.Create(ctx, client.NewSandbox{Template: template(), Timeout: cube.NeverTimeout})
	if err != nil {
		t.Fatal(err)
	}
	if err := bring(ctx, b); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Shell(ctx, s.API, b, "cd "+home+"; setsid nohup python3 tunnel.py >log 2>&1 </dev/null &"); err != nil {
		t.Fatal(err)
	}
	var was lab.Working
	if err := lab.Until(time.Minute, "the program answers", func() error {
		was, err = s.Ask(ctx, b.ID, "rounds")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Progress(ctx, b.ID, was); err != nil { // with the device
		t.Fatal(err)
	}
	pid := strconv.Itoa(was.Job)
	for name, save := range map[string]func() error{
		"snapshot": func() error { _, err := s.API.Snapshot(ctx, b.ID, ""); return err },
		"pause":    func() error { return s.API.Pause(ctx, b.ID) },
		"clone":    func() error { _, err := s.API.Clone(ctx, b.ID, client.Cloning{Count: 1}); return err },
	} {
		err := save()
		if !errors.Is(err, cube.ErrConflict) {
			t.Fatalf("%s: got %v, want %v", name, err, cube.ErrConflict)
		}
		for _, part := range []string{"process " + pid + ` ("python3")`, `"/dev/net/tun"`, `"tun0"`, "save again"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not say %s", name, err, part)
			}
		}
		if len(err.Error()) > 500 {
			t.Errorf("%s: %d bytes of error: %v", name, len(err.Error()), err)
		}
		now, err := s.Ask(ctx, b.ID, "check")
		if err := errors.Join(err, now.Follows(was), s.Progress(ctx, b.ID, now)); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	// Its parent has not waited for it: it is still there, and has nothing open any more.
	if _, err := lab.Shell(ctx, s.API, b, "kill "+pid+" && until grep -q 'State:.Z' /proc/"+pid+"/status; do sleep 0.05; done"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Snapshot(ctx, b.ID, ""); err != nil {
		t.Errorf("when the program has ended: %v", err)
	}
}
