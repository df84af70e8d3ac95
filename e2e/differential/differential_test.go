package differential

import (
	"fmt"
	"os"
	"testing"
	"time"

	"cubesandbox/e2e/differential/guestapi"
	"cubesandbox/e2e/lab"
)

// sampleSeed decides which cases are taken; CUBE_SEED has others taken.
const sampleSeed = 5

// differ runs one shape; in the long form again and again, each time with another seed,
// until its share of the time is over.
func differ(t *testing.T, sh shape) {
	t.Helper()
	sh.large = lab.Pick[int64](8<<20, 64<<20, 64<<20)
	first, end := lab.Seed(t, sampleSeed), time.Now().Add(share(t))
	for n := first; n == first || time.Now().Before(end); n++ {
		again := func(t *testing.T) {
			s.Guard(t)
			if err := newRun(n, sh, t.Logf).do(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !t.Run(fmt.Sprintf("CUBE_SEED=%d", n), again) {
			return
		}
	}
}

// shapes is how many tests share the time.
const shapes = 5

// share is how long one test goes on in the long form; CUBE_SOAK_TIME is another time
// of all.
func share(t *testing.T) time.Duration {
	t.Helper()
	if !lab.Long() {
		return 0
	}
	all := time.Hour
	if text := os.Getenv("CUBE_SOAK_TIME"); text != "" {
		var err error
		if all, err = time.ParseDuration(text); err != nil {
			t.Fatalf("CUBE_SOAK_TIME: %v", err)
		}
	}
	return all / shapes
}

// TestEachOperationHasInCopiesTheEffectThatItHasWhereNothingWasSaved: every operation
// of the table, six generations.
func TestEachOperationHasInCopiesTheEffectThatItHasWhereNothingWasSaved(t *testing.T) {
	differ(t, shape{mode: guestapi.Both, generations: 6, rounds: lab.Pick(1, 1, 3)})
}

func TestMemoryAlone(t *testing.T) {
	differ(t, shape{mode: guestapi.MemoryOnly, generations: lab.Pick(1, 6, 8), rounds: 1, most: lab.Pick(3, 0, 0)})
}

func TestFilesAlone(t *testing.T) {
	differ(t, shape{mode: guestapi.FilesOnly, generations: lab.Pick(1, 6, 8), rounds: 1, most: lab.Pick(3, 0, 0)})
}

// TestUnderLoad: threads write blocks without pause, into memory and files, while saves
// happen. Every block is whole in every copy, and all else is as in the model, which is
// not loaded.
func TestUnderLoad(t *testing.T) {
	differ(t, shape{mode: guestapi.Both, generations: lab.Pick(1, 3, 12), rounds: 1, most: lab.Pick(2, 3, 0), load: true})
}

// TestWhileImagesAreReclaimed: what is in the page cache of images is taken out of it
// all the time.
func TestWhileImagesAreReclaimed(t *testing.T) {
	before := reclaimed.Load()
	differ(t, shape{mode: guestapi.Both, generations: lab.Pick(1, 4, 12), rounds: 1, most: lab.Pick(3, 4, 0), reclaim: true})
	if n := reclaimed.Load() - before; n == 0 {
		t.Error("no page was taken out of the page cache")
	} else {
		t.Logf("%d MiB were taken out of the page cache", n*4096>>20)
	}
}
