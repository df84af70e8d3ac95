package progress

import (
	"bytes"
	"errors"
	"regexp"
	"testing"
)

func TestPlainWritesOneLineForEachStepAndNoControlCharacters(t *testing.T) {
	var out bytes.Buffer
	r := Plain(&out)
	s := r.Begin("unpack")
	s.Grow(10)
	s.Add(3)
	s.Done("10 files")
	r.Begin("boot").Fail(errors.New("no answer"))
	r.Note("total %d", 2)
	want := regexp.MustCompile(`^  unpack: 10 files \([0-9.µm]+s\)\n  boot: failed: no answer \([0-9.µm]+s\)\ntotal 2\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got %q, want %s", out.String(), want)
	}
}

func TestNilReporterIsSilentAndSafe(t *testing.T) {
	var r *Reporter
	s := r.Begin("x")
	s.Grow(1)
	s.Add(1)
	s.Done("")
	s.Fail(errors.New("x"))
	r.Note("y")
}
