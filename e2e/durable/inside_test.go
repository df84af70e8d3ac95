package durable

import (
	"strings"
	"testing"
	"time"

	"cubesandbox/client"
)

// TestProgramsInsideAreToldThatTheHostsDiskIsFull: with no room for what sandboxes
// write, a program that writes gets the error that says so, and all go on; when there
// is room it can write again.
func TestProgramsInsideAreToldThatTheHostsDiskIsFull(t *testing.T) {
	s.Guard(t)
	ctx := t.Context()
	in, st := witnessed(t, s, client.NewSandbox{Timeout: time.Hour})
	const write = "head -c 20000000 /dev/urandom 2>&1 >/root/big"
	undo := s.FillDisk(t)
	out, err := in.run(ctx, "/bin/sh", "-c", write+"; echo status $?")
	if err != nil || !strings.Contains(out, "No space left on device") || strings.Contains(out, "status 0") {
		t.Errorf("a program that writes is told %q (%v)", out, err)
	}
	in.same(t, st)
	undo()
	if _, err := in.run(ctx, "/bin/sh", "-c", write+` && [ $(wc -c </root/big) = 20000000 ]`); err != nil {
		t.Errorf("when there is room: %v", err)
	}
	in.same(t, st)
	if _, err := in.step(ctx); err != nil {
		t.Error(err)
	}
}
