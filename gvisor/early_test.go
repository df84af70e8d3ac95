package gvisor

import (
	"fmt"
	"reflect"
	"testing"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

func TestWhatALifeWritesFirstIsKnownOfItsPagesAndOfThoseThatComeFromThem(t *testing.T) {
	w := early{known: map[cube.BaseID]writes{}, asking: map[string]bool{}}
	copyOf := func(base cube.BaseID, life string) asked { return asked{base, life, false} }
	source := asked{"a", "0", true}
	if !w.begin(copyOf("a", "1")) || w.begin(copyOf("a", "2")) || w.begin(copyOf("b", "1")) || !w.begin(copyOf("b", "2")) || !w.begin(source) {
		t.Error("of each image one copy is asked at a time, and its source, and each life once")
	}
	w.end(copyOf("a", "1"), nil) // it had ended
	if !w.begin(copyOf("a", "1")) {
		t.Error("where nothing was said the next is asked")
	}
	w.end(source, []keeperapi.PageRange{{Start: 0, End: 4096}})
	if got := w.of("a", nil); len(got) != 1 {
		t.Errorf("of the source: got %v", got)
	}
	said := []keeperapi.PageRange{{Start: 4096, End: 8192}}
	w.end(copyOf("a", "1"), said) // counts for more
	if w.begin(copyOf("a", "3")) || w.begin(source) {
		t.Error("what is known is asked again")
	}
	for what, got := range map[string][]keeperapi.PageRange{
		"its own": w.of("a", nil), "of one that comes from it": w.of("c", []cube.BaseID{"b", "a"}),
	} {
		if !reflect.DeepEqual(got, said) {
			t.Errorf("%s: got %v", what, got)
		}
	}
	if got := w.of("b", nil); got != nil {
		t.Errorf("of others: got %v", got)
	}
	for n := range 3 * maxEarly {
		w.end(copyOf(cube.BaseID(fmt.Sprint(n)), ""), said)
	}
	if n := len(w.known); n > maxEarly {
		t.Errorf("%d are known, want %d at most", n, maxEarly)
	}
	if w.of(cube.BaseID(fmt.Sprint(3*maxEarly-1)), nil) == nil {
		t.Error("the last is not known")
	}
}

func TestOfATemplateNoSandboxTellsWhereItWrote(t *testing.T) {
	some := cube.NewSandboxID()
	for _, c := range []struct {
		kind cube.ImageKind
		id   cube.SandboxID
		want bool
	}{
		{cube.KindTemplate, some, false}, {cube.KindTemplate, nobodyID, false},
		{cube.KindSnapshot, nobodyID, false}, {cube.KindSnapshot, some, true}, {cube.KindPause, some, true},
	} {
		if got := tells(c.kind, c.id); got != c.want {
			t.Errorf("a copy of a %s that is %s's: got %v", c.kind, c.id, got)
		}
	}
}
