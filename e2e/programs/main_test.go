// Package programs has the tests of programs under work: a Go program whose collector runs,
// a JVM, node, redis, sqlite and numpy are snapshotted, cloned, rolled back and paused at
// random moments, in chains, and every copy has to hold what it must, byte by byte, and to
// go on working.
//
// make check has a short form, make soak the long one; with no CUBE_FORM there is less, for
// who works on it. CUBE_SEED chooses
// other moments, CUBE_PROGRAM the programs whose names fit a regular expression, CUBE_SOAK_TIME
// how long each works.
package programs

import (
	"context"
	"os"
	"path/filepath"
	"testing"

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
	return s.Warm(ctx, template)
}

// template is the name of the one in which programs run.
const template = lab.ProgramsTemplate
