package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// The table of this repository: every test that it names must exist.
func TestTheTableNamesTestsThatExist(t *testing.T) {
	const file = "../../docs/conformance/issue-2.tsv"
	rows, err := ReadRows(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check("../..", file, rows); err != nil {
		t.Error(err)
	}
	points := map[string]bool{}
	for _, row := range rows {
		point, _, _ := strings.Cut(row.Key, ".")
		points[point] = true
	}
	for _, point := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "T", "S"} {
		if !points[point] {
			t.Errorf("no sentence of point %s is in the table", point)
		}
	}
}

func TestATestThatDoesNotExistIsNamedWithItsLine(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "p/p_test.go", "package p\nfunc TestA() {}\n")
	file := put(t, dir, "t.tsv", "# comment\n1.1\tis\tp:TestA/sub\n1.2\tis not\tp:TestB; run:nothing\n1.3\topen\t-\n1.4\twrong\tTestA\n1.5\twrong\tfigure:rollback\n")
	rows, err := ReadRows(file)
	if err != nil || len(rows) != 5 {
		t.Fatalf("got %v, %v", rows, err)
	}
	err = Check(dir, "t.tsv", rows)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"t.tsv:3: p has no test TestB", "t.tsv:3: there is no run \"nothing\"", "t.tsv:6: \"rollback\"", "t.tsv:5: \"TestA\""} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), ":2:") {
		t.Errorf("a test that exists is named: %v", err)
	}
}

func TestTablesThatAreWrongAreRefused(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"1.1\tno evidence\n":     "t.tsv:1: 2 fields",
		"1\ta\t-\n\n1\tb\t-\n":   "t.tsv:3: 1 is there twice",
		"1.1 spaces, no tabs -n": "t.tsv:1: 1 fields",
	} {
		if _, err := ReadRows(put(t, dir, "t.tsv", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestTheWorstOutcomeOfARowCounts(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "unit.json", `{"Action":"pass","Package":"cubesandbox/p","Test":"TestA"}
{"Action":"pass","Package":"cubesandbox/p","Test":"TestB"}
{"Action":"run","Package":"cubesandbox/p","Test":"TestC"}
{"Action":"pass","Package":"cubesandbox","Test":"TestRoot"}
{"Action":"pass","Package":"cubesandbox/p"}
not json
`)
	put(t, dir, "soak.json", `{"Action":"fail","Package":"cubesandbox/p","Test":"TestB"}`)
	put(t, dir, "patches.json", `{"Action":"pass","Package":"gvisor.dev/gvisor/runsc/boot","Test":"TestC"}`)
	put(t, dir, "probe.json", `{"result":"PASS"}`)
	put(t, dir, "bench.json", `{"rows":[{"name":"rollback","p50_ms":90.5,"cpu_ms":40},{"name":"pause","p50_ms":100,"cpu_ms":50},{"name":"idle.overhead_mb","value":25}]}`)
	results, err := ReadResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		evidence string
		want     Outcome
	}{
		{"p:TestA", Passed}, {"p:TestA,p:TestB", Failed}, {"p:TestA,p:TestC", NotRun}, {".:TestRoot", Passed},
		{"gvisor/patches/_added/runsc/boot:TestC", Passed},
		{"run:probe", Passed}, {"run:bench", Passed}, {"p:TestC,p:TestB", Failed},
		{"figure:rollback<=90.5", Passed}, {"figure:rollback<=90", Missed}, {"figure:idle.overhead_mb<=24", Missed},
		{"figure:rollback<=0.91*pause", Passed}, {"figure:rollback:cpu<=0.75*pause:cpu", Missed}, {"figure:rollback<=2*resume", NotRun},
		{"figure:resume<=9", NotRun}, {"figure:rollback<=90,p:TestC", NotRun}, {"p:TestA,figure:rollback<=90", Missed},
	} {
		if got := results.Of(Row{Evidence: strings.Split(test.evidence, ",")}); got != test.want {
			t.Errorf("%s: got %s, want %s", test.evidence, got, test.want)
		}
	}
}

func TestARunThatSaysItFailedOrSaysNothingHasFailed(t *testing.T) {
	for text, want := range map[string]Outcome{
		`{"result":"PASS"}`: Passed, `{"result":"FAIL"}`: Failed, `{"rows":[{}]}`: Passed, `{"rows":[]}`: Failed, ``: Failed, `nonsense`: Failed,
	} {
		dir := t.TempDir()
		put(t, dir, "probe.json", text)
		results, err := ReadResults(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := results.Of(Row{Evidence: []string{"run:probe"}}); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestThePageSaysWhatNothingShows(t *testing.T) {
	page := Part("T", "t.tsv", []Row{
		{Key: "1.1", Sentence: "a|b", Evidence: []string{"p:TestA", "p:TestB"}},
		{Key: "1.2", Sentence: "open"},
	}, Results{tests: map[string]Outcome{"p:TestA": Passed, "p:TestB": Passed}})
	for _, want := range []string{
		"2 sentences: 1 passed, 0 failed, 0 missed, 0 not run, 1 that nothing shows yet.",
		"| 1.1 | a\\|b | `p:TestA`<br>`p:TestB` | passed |\n| 1.2 | open |  | nothing shows it yet |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in:\n%s", want, page)
		}
	}
}
