package gvisor

import (
	"errors"
	"testing"

	cube "cubesandbox"
)

func TestAPromiseIsTakenBackInPartsAndOnce(t *testing.T) {
	e := &Engine{}
	e.pools.e = e
	a := &e.admission
	p, err := a.try(e, 10<<20)
	if err != nil {
		t.Fatal(err)
	}
	want := func(left int64) {
		t.Helper()
		if a.promised != left<<20 {
			t.Errorf("%d bytes are promised, want %d MiB", a.promised, left)
		}
	}
	want(10)
	p.kept(4 << 20)
	want(6)
	other, err := a.try(e, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	p.kept(100 << 20) // no more than was promised
	want(1)
	p.end()
	p.end()
	want(1)
	other.end()
	want(0)
	if _, err := a.try(e, 1<<60); !errors.Is(err, cube.ErrNoCapacity) {
		t.Errorf("got %v, want that there is not so much", err)
	}
	// Of a budget it is not known what has been taken before a sandbox says it.
	a.budget = 100 << 20
	if p, err = a.try(e, 10<<20); err != nil {
		t.Fatal(err)
	}
	p.kept(10 << 20)
	want(10)
	p.end()
	want(0)
}
