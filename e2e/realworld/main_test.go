// Package realworld has the tests of programs of the real world that are saved and rolled
// back at random moments: git clones, pip and npm installs, sqlite, redis, nginx, servers of
// node, Go and Java with connections that are kept, asyncio, and bash in a terminal. Each
// has one inside who knows what must be so, and that one goes back with it; servers have
// visitors from outside too, who do not go back.
//
// make check has all programs, make soak twenty snapshots and rollbacks of each; with no
// CUBE_FORM there are some for which the template base is enough, for who works on it.
// CUBE_SEED chooses other moments, CUBE_PROGRAM the programs whose names fit a regular
// expression.
package realworld

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"cubesandbox/e2e/lab"
)

// s is the server of all tests in this package.
var s *lab.Server

// goserver is the Go program, as it goes into a sandbox.
var goserver []byte

func TestMain(m *testing.M) { os.Exit(lab.Main(m, &s, ready)) }

// ready makes what the programs need, and uses everything once, so that what is opened at
// first use looks like no leak.
func ready(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "cube-realworld-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if everything() {
		if err := s.BuildPrograms(dir); err != nil {
			return err
		}
	}
	if goserver, err = lab.BuildGo(ctx, "goserver", filepath.Join(dir, "server")); err != nil {
		return err
	}
	return s.Warm(ctx, template())
}

// sampleSeed decides at which moments programs are saved; CUBE_SEED chooses others.
const sampleSeed = 6

// everything reports whether the programs that base does not have are wanted: their
// template takes a minute to make.
func everything() bool { return lab.Form() != "" || os.Getenv("CUBE_PROGRAM") != "" }

// template is the name of the one in which programs run.
func template() string {
	if everything() {
		return lab.ProgramsTemplate
	}
	return "base"
}
