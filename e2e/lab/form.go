package lab

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"cubesandbox/client"
)

// Form is how long tests are to take: "" for make test, "ci" for make check, "long"
// for make soak.
func Form() string { return os.Getenv("CUBE_FORM") }

// Long reports whether it is make soak.
func Long() bool { return Form() == "long" }

// Pick is what a test is to do in make test, in make check and in make soak.
func Pick[T any](test, check, soak T) T {
	switch Form() {
	case "ci":
		return check
	case "long":
		return soak
	}
	return test
}

// Seed decides what a test does by chance: that of CUBE_SEED, else the given one. It is
// printed, so that a failure can be had again.
func Seed(t *testing.T, seed uint64) uint64 {
	t.Helper()
	if text := os.Getenv("CUBE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("CUBE_SEED: %v", err)
		}
	}
	t.Logf("CUBE_SEED=%d", seed)
	return seed
}

// Chance is of a Seed, and another than that of other tests of the same seed.
func Chance(t *testing.T, seed uint64) *rand.Rand {
	t.Helper()
	name := fnv.New64a()
	name.Write([]byte(t.Name())) // never fails
	return rand.New(rand.NewPCG(Seed(t, seed), name.Sum64()))
}

// Warm uses a sandbox of a template once, so that what a server opens at first use looks
// like no leak.
func (s *Server) Warm(ctx context.Context, template string) error {
	b, err := s.API.Create(ctx, client.NewSandbox{Template: template})
	if err != nil {
		return err
	}
	_, err = Shell(ctx, s.API, b, "true")
	return errors.Join(err, s.API.Kill(ctx, b.ID))
}
