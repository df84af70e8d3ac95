package campaign

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
)

// tag names one case.
func tag() string { return "case-" + string(cube.NewSandboxID()) }

// table is what a campaign found.
type table struct {
	OK    bool  `json:"ok"`
	Cases int   `json:"cases"`
	Lost  int   `json:"lost"`
	Left  int   `json:"left"`
	Rows  []row `json:"rows"`
}

func (tb *table) add(t *testing.T, r row) {
	t.Helper()
	tb.Rows = append(tb.Rows, r)
	tb.Cases++
	what := fmt.Sprintf("%s, %s at %s", r.Verb, r.Action, r.At)
	if r.Lost != "" {
		tb.Lost++
		t.Errorf("%s: lost: %s\nthe server's last warnings:\n%s", what, r.Lost, s.Warnings(12))
	}
	if r.Left != "" {
		tb.Left++
		t.Errorf("%s: left: %s", what, r.Left)
	}
	if tb.Lost+tb.Left > 10 {
		t.Fatal("that is enough")
	}
}

// print shows points × verbs: of each how many cases, and in how many of them the verb
// had happened.
func (tb *table) print(t *testing.T) {
	t.Helper()
	type cell struct {
		cases, happened, wrong int
		ms                     float64
	}
	cells, all := map[[2]string]*cell{}, map[string]bool{}
	for _, r := range tb.Rows {
		point, _, _ := strings.Cut(r.At, "#")
		key := [2]string{r.Verb, r.Action + " " + point}
		if cells[key] == nil {
			cells[key] = &cell{}
		}
		c := cells[key]
		c.cases++
		c.ms = max(c.ms, r.MS)
		if r.Happened {
			c.happened++
		}
		if r.Lost+r.Left != "" {
			c.wrong++
		}
		all[r.Verb] = true
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "verb\tat\tcases\thappened\tlost or left\tms at most")
	keys := slices.SortedFunc(maps.Keys(cells), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%.0f\n", k[0], k[1], cells[k].cases, cells[k].happened, cells[k].wrong, cells[k].ms)
	}
	w.Flush()
	t.Logf("%d cases of %d verbs: %d lost, %d left\n%s", tb.Cases, len(all), tb.Lost, tb.Left, out.String())
}

// store keeps the table of a full campaign with the other results.
func (tb *table) store(t *testing.T, name string) {
	t.Helper()
	tb.print(t)
	tb.OK = tb.Lost+tb.Left == 0 && tb.Cases > 0 && !t.Failed()
	if lab.Form() == "" {
		return
	}
	dir := filepath.Join(lab.Root(), ".cache", "results")
	b, err := json.MarshalIndent(tb, "", " ")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".json"), append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// sampleSeed decides which cases make test takes; CUBE_SEED has others taken.
const sampleSeed = 4

// sample returns n of all, in the order that they have; all where n is less than 0.
func sample[T any](chance *rand.Rand, all []T, n int) []T {
	if n < 0 || n >= len(all) {
		return all
	}
	at := chance.Perm(len(all))[:n]
	slices.Sort(at)
	var out []T
	for _, i := range at {
		out = append(out, all[i])
	}
	return out
}
