// Package programs has the tests of programs under work: a Go program whose collector runs,
// a JVM, node, redis, sqlite and numpy are snapshotted, cloned, rolled back and paused at
// random moments, in chains, and every copy has to hold what it must, byte by byte, and to
// go on working.
//
// make test and make check have a short form each, make soak the long one. CUBE_SEED chooses
// other moments, CUBE_PROGRAM the programs whose names fit a regular expression, CUBE_SOAK_TIME
// how long each works.
package programs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// s is the server of all tests in this package.
var s *lab.Server

// goheap is the Go program, as it goes into a sandbox.
var goheap []byte

func TestMain(m *testing.M) { os.Exit(lab.Main(m, &s, ready)) }

// ready makes the template and the Go program, and uses everything once, so that what is
// opened at first use looks like no leak.
func ready(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "cube-programs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := s.BuildPrograms(dir); err != nil {
		return err
	}
	if goheap, err = lab.BuildGo(ctx, "goheap", filepath.Join(dir, "goheap")); err != nil {
		return err
	}
	b, err := s.API.Create(ctx, client.NewSandbox{Template: template})
	if err != nil {
		return err
	}
	_, err = lab.Shell(ctx, s.API, b, "true")
	return errors.Join(err, s.API.Kill(ctx, b.ID))
}

// template is the name of the one in which programs run.
const template = lab.ProgramsTemplate

// form is what a test is to do in make test, in make check and in make soak.
func form[T any](test, check, soak T) T {
	switch lab.Form() {
	case "ci":
		return check
	case "long":
		return soak
	}
	return test
}
