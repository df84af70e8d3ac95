// Package realworld has the tests of programs of the real world that are saved and rolled
// back at random moments: git clones, pip and npm installs, sqlite, redis, nginx, servers of
// node, Go and Java with connections that are kept, asyncio, and bash in a terminal. Each
// has one inside who knows what must be so, and that one goes back with it; servers have
// visitors from outside too, who do not go back.
//
// make test has some programs for which the template base is enough, make check all of them,
// make soak twenty snapshots and rollbacks of each. CUBE_SEED chooses other moments,
// CUBE_PROGRAM the programs whose names fit a regular expression.
package realworld

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"cubesandbox/client"
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
	b, err := s.API.Create(ctx, client.NewSandbox{Template: template()})
	if err != nil {
		return err
	}
	_, err = lab.Shell(ctx, s.API, b, "true")
	return errors.Join(err, s.API.Kill(ctx, b.ID))
}

// everything reports whether the programs that base does not have are wanted: their
// template is not made for make test.
func everything() bool { return lab.Form() != "" || os.Getenv("CUBE_PROGRAM") != "" }

// template is the name of the one in which programs run.
func template() string {
	if everything() {
		return lab.ProgramsTemplate
	}
	return "base"
}

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

// chance is a test's, the same at each run where CUBE_SEED is.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(6)
	if text := os.Getenv("CUBE_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatalf("CUBE_SEED: %v", err)
		}
	}
	t.Logf("CUBE_SEED=%d", seed)
	name := fnv.New64a()
	name.Write([]byte(t.Name())) // never fails
	return rand.New(rand.NewPCG(seed, name.Sum64()))
}
