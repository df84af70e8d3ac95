package storetest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	cube "cubesandbox"
)

// childVariable makes a test binary write into the store at its value until it is
// killed.
const childVariable = "CUBE_STORETEST_CHILD"

// Main runs the tests of a package that calls Killed, which starts the test binary
// again.
func Main(m *testing.M, open Open) {
	if path := os.Getenv(childVariable); path != "" {
		fmt.Println(child(open, path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// familySize is how many records the child stores together.
const familySize = 3

// child puts families under an alias of their own, each several times over, and says
// what was acknowledged, a line each.
func child(open Open, path string) error {
	s, err := open(path)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for {
		family := make([]cube.Record, familySize)
		alias := string(cube.NewSandboxID())
		for i := range family {
			family[i] = cube.Record{ID: cube.NewSandboxID(), Alias: alias, Metadata: map[string]string{"k": alias}}
		}
		for gen := range cube.Generation(3) {
			if err := s.Apply(ctx, cube.Batch{Sandboxes: next(family, gen+1)}); err != nil {
				return err
			}
			fmt.Println(alias, gen+1)
		}
	}
}

func kills() []promise {
	return []promise{
		{"kill: kill -9 in the midst of puts loses nothing that was acknowledged and leaves nothing half", func(x *X) {
			acknowledged := map[string]cube.Generation{}
			for range 5 {
				x.noError(x.s.Close(), "close")
				x.killWriter(20+x.gen.IntN(80), acknowledged)
				x.s = x.opened()
				x.whole(acknowledged)
			}
		}},
	}
}

func lives() []promise {
	return []promise{
		{"close: waits for what is under way; afterwards nothing works", func(x *X) {
			var mu sync.Mutex // guards acknowledged
			acknowledged := map[string]cube.Generation{}
			var writing sync.WaitGroup
			some := make(chan struct{}, 4*familySize)
			for range 4 {
				writing.Go(func() {
					for {
						alias := string(cube.NewSandboxID())
						family := make([]cube.Record, familySize)
						for i := range family {
							family[i] = cube.Record{ID: cube.NewSandboxID(), Alias: alias, Generation: 1}
						}
						if err := x.s.Apply(x.ctx, cube.Batch{Sandboxes: family}); err != nil {
							return
						}
						mu.Lock()
						acknowledged[alias] = 1
						mu.Unlock()
						select {
						case some <- struct{}{}:
						default:
						}
					}
				})
			}
			for range cap(some) {
				<-some
			}
			x.noError(x.s.Close(), "close")
			writing.Wait()
			x.works(x.s, false)
			x.s = x.opened()
			x.works(x.s, true)
			x.whole(acknowledged)
		}},
	}
}

// killWriter starts a child, kills it when it has acknowledged n puts, and notes all
// that it acknowledged.
func (x *X) killWriter(n int, acknowledged map[string]cube.Generation) {
	cmd := exec.CommandContext(x.ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+x.path)
	out, err := cmd.StdoutPipe()
	x.noError(err, "pipe")
	x.noError(cmd.Start(), "start a child")
	got := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var alias string
		var gen cube.Generation
		if _, err := fmt.Sscan(lines.Text(), &alias, &gen); err != nil {
			x.Errorf("the child says %q", lines.Text())
			break
		}
		acknowledged[alias] = gen
		if got++; got == n {
			x.noError(cmd.Process.Kill(), "kill")
		}
	}
	cmd.Wait() // it was killed
	if got < n {
		x.Fatalf("the child acknowledged %d puts and ended; want %d", got, n)
	}
}

// whole checks that every family is there as it was acknowledged, or, for what was
// never answered, one put later, and that all of its members are alike.
func (x *X) whole(acknowledged map[string]cube.Generation) {
	x.Helper()
	families := map[string][]cube.Record{}
	for _, r := range x.all() {
		families[r.Alias] = append(families[r.Alias], r)
	}
	for alias, gen := range acknowledged {
		if family := families[alias]; len(family) == 0 || family[0].Generation < gen {
			x.Errorf("put %d of %s was acknowledged; got %+v", gen, alias, family)
		}
	}
	for alias, family := range families {
		for _, r := range family {
			if len(family) != familySize || r.Generation != family[0].Generation || r.Generation > acknowledged[alias]+1 {
				x.Errorf("of %s, acknowledged to put %d, a part is there: %+v", alias, acknowledged[alias], family)
				break
			}
		}
	}
}

// works checks that every method does, or that none does.
func (x *X) works(s cube.Store, want bool) {
	x.Helper()
	r := x.gen.record()
	apply := s.Apply(x.ctx, cube.Batch{Sandboxes: []cube.Record{r}, Plans: []cube.Plan{x.gen.plan()}})
	one := s.Apply(x.ctx, cube.Batch{Sandboxes: []cube.Record{r}})
	_, get := s.Sandbox(x.ctx, r.ID)
	_, sandboxes := s.Sandboxes(x.ctx)
	_, snapshots := s.Snapshots(x.ctx)
	_, plans := s.Plans(x.ctx)
	_, answers := s.Answers(x.ctx)
	drop := s.Apply(x.ctx, cube.Batch{DropSandboxes: []cube.SandboxID{r.ID}})
	for what, err := range map[string]error{
		"apply": apply, "apply one": one, "get": get, "list sandboxes": sandboxes, "list snapshots": snapshots,
		"list plans": plans, "list answers": answers, "drop": drop, "sync": s.Sync(x.ctx),
	} {
		if (err == nil) != want {
			x.Errorf("%s: got error %v, want it to work: %v", what, err, want)
		}
	}
}
