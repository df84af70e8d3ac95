package differential

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"cubesandbox/e2e/differential/guestapi"
	"cubesandbox/e2e/lab"
)

// Whether the test itself would see what it looks for.

func TestARunFailsWhereCopiesLoseAStore(t *testing.T) {
	s.Guard(t)
	u := newRun(lab.Seed(t, sampleSeed), shape{mode: guestapi.MemoryOnly, generations: 1, rounds: 1}, t.Logf)
	u.fault = lostStore
	err := u.do(t.Context())
	if err == nil {
		t.Fatal("copies have lost stores, and the run did not see it")
	}
	t.Logf("as it should: %.300v", err)
	for _, want := range []string{"CUBE_SEED=", "operation \"", "generation 1", "snapshot the subject"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the failure does not say %q: %v", want, err)
		}
	}
}

func TestARunFailsWhereNobodyStaysApart(t *testing.T) {
	s.Guard(t)
	u := newRun(lab.Seed(t, sampleSeed), shape{mode: guestapi.MemoryOnly, generations: 1, rounds: 1, most: 2}, t.Logf)
	u.fault = nobodyApart
	if err := u.do(t.Context()); !errors.Is(err, errApart) {
		t.Fatalf("all were given the same commands, and the run says: %v", err)
	}
}

// two boots two sandboxes that have begun alike.
func two(t *testing.T) *run {
	t.Helper()
	s.Guard(t)
	u := newRun(lab.Seed(t, sampleSeed), shape{mode: guestapi.Both, generations: 1, rounds: 1, large: 4 << 20}, t.Logf)
	if err := u.boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	return u
}

// alias reports whether a part shows what another part has, or is not to be written.
func alias(part string) bool {
	return strings.HasPrefix(part, "file behind ") || strings.Contains(part, "view of ") || strings.HasPrefix(part, "lower layer") ||
		strings.HasPrefix(part, "worker ") && strings.HasSuffix(part, "shared anonymous")
}

// TestAByteThatIsOtherIsFoundInEachPart: one byte of each region and file is changed
// behind the back of the test, which finds all of them, at their offsets.
func TestAByteThatIsOtherIsFoundInEachPart(t *testing.T) {
	u, ctx := two(t), t.Context()
	flipped := map[string]int64{}
	chance := rand.New(rand.NewPCG(u.seed, 2))
	flip := func() {
		for part, off := range flipped {
			if _, err := u.subject.ask(ctx, guestapi.Request{Do: guestapi.Flip, Part: part, Offset: off}); err != nil {
				t.Fatalf("flip byte %d of %s: %v", off, part, err)
			}
		}
	}
	for _, p := range u.parts {
		if !alias(p.Name) && p.Name != "names" {
			flipped[p.Name] = chance.Int64N(p.Size)
		}
	}
	flip()
	both, err := digests(ctx, []*box{u.subject, u.model}, each(all))
	if err != nil {
		t.Fatal(err)
	}
	found := differing(both[0], both[1])
	for part, off := range flipped {
		if !slices.Contains(found, part) {
			t.Errorf("byte %d of %s is another, and that is not seen", off, part)
		} else if d, err := locate(ctx, u.subject, u.model, part); err != nil || d.offset != off {
			t.Errorf("byte %d of %s is another; found is %v (%v)", off, part, d, err)
		}
	}
	for _, part := range []string{"file behind shared file", "file behind shared tmpfs file"} {
		if !slices.Contains(found, part) {
			t.Errorf("%s does not show what was stored into its mapping", part)
		}
	}
	t.Logf("%d bytes of %d parts were found", len(flipped), len(u.parts))
	flip() // back
	if err := u.look(ctx, []*box{u.subject}, nil); err != nil {
		t.Errorf("with all bytes back as they were: %v", err)
	}
	if _, err := u.subject.ask(ctx, guestapi.Request{Do: guestapi.Flip, Part: "names"}); err != nil {
		t.Fatal(err)
	}
	var d *difference
	if err := u.look(ctx, []*box{u.subject}, nil); !errors.As(err, &d) || d.part != "names" {
		t.Errorf("a file is there that should not be; found is %v", err)
	}
}

// quiet are operations that change nothing that is compared: their results are.
var quiet = []string{
	"madvise REMOVE", "leave a worker in a futex", "wake the worker from its futex", "write(2), pwritev and send from memory", "fork and exec",
	"mprotect NONE or READ, and back",
}

// TestEachOperationHasAnEffect: done by the model alone it changes what is read of it.
func TestEachOperationHasAnEffect(t *testing.T) {
	u, ctx := two(t), t.Context()
	if err := u.subject.kill(ctx); err != nil {
		t.Fatal(err)
	}
	decks, err := u.deal(ctx)
	if err != nil {
		t.Fatal(err)
	}
	before := u.parts
	for _, name := range decks[0] {
		var changed []string
		for try := 0; try < 4 && len(changed) == 0; try++ { // some seeds have none
			if _, err := u.model.ask(ctx, guestapi.Request{Do: guestapi.Operate, Operation: name, Seed: u.chance.Uint64()}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			after, err := digests(ctx, []*box{u.model}, each(all))
			if err != nil {
				t.Fatal(err)
			}
			changed, before = differing(after[0], before), after[0]
			if slices.Contains(quiet, name) {
				break
			}
		}
		if len(changed) == 0 && !slices.Contains(quiet, name) {
			t.Errorf("%q changes nothing", name)
		}
		t.Logf("%q changes %q", name, changed)
	}
}
