package conformance

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"cubesandbox/internal/testrun"
)

// Outcome is how a piece of evidence went the last time.
type Outcome string

// The outcomes. NotRun also stands for a test that began and did not end. Missed is
// a figure above its bound: figures depend on the machine, so it fails nothing.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	Missed Outcome = "missed"
	NotRun Outcome = "not run"
)

// Results are what the last runs gave.
type Results struct {
	tests   map[string]Outcome // by evidence, as rows name it: tests and runs
	figures map[string]float64 // of cube bench, by row: p50 in ms, or the value
}

// module is the path that folders of the tree have as packages.
const module = "cubesandbox"

// ReadResults reads what make test and make check have left in dir: go test -json
// in files of any name, and the runs of the product. A test that ran in more than
// one file has passed only if it passed in each.
func ReadResults(dir string) (Results, error) {
	results := Results{tests: map[string]Outcome{}, figures: map[string]float64{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return results, err
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".json"); isRun(name) {
			outcome, err := readRun(file)
			if err != nil {
				return results, err
			}
			results.tests["run:"+name] = outcome
			if err := results.readFigures(file); err != nil {
				return results, err
			}
			continue
		}
		if err := results.readTests(file); err != nil {
			return results, err
		}
	}
	return results, nil
}

func isRun(name string) bool {
	for _, run := range Runs {
		if run == name {
			return true
		}
	}
	return false
}

// readRun reads the report of a run: it has failed if it says so, or is no report.
func readRun(file string) (Outcome, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return NotRun, err
	}
	var report struct {
		Result string            `json:"result"`
		OK     bool              `json:"ok"`
		Rows   []json.RawMessage `json:"rows"`
	}
	if json.Unmarshal(text, &report) != nil || report.Result != "PASS" && !report.OK && len(report.Rows) == 0 {
		return Failed, nil
	}
	return Passed, nil
}

// patched is gVisor, tests of which are in the folder of what we add to it.
const patched, added = "gvisor.dev/gvisor/", "gvisor/patches/_added/"

// folderOf is where in the tree the tests of a package are.
func folderOf(pkg string) string {
	if dir, ok := strings.CutPrefix(pkg, patched); ok {
		return added + dir
	}
	folder := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
	if folder == "" {
		return "."
	}
	return folder
}

func (r Results) readTests(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var e testrun.Event
		if json.Unmarshal(scanner.Bytes(), &e) != nil || e.Test == "" {
			continue
		}
		key := folderOf(e.Package) + ":" + e.Test
		switch {
		case e.Action == "fail":
			r.tests[key] = Failed
		case e.Action == "pass" && r.tests[key] != Failed:
			r.tests[key] = Passed
		}
	}
	return scanner.Err()
}

// Of returns how all the evidence of a row went together: the worst of it, where
// failed is worse than not run, and that worse than missed.
func (r Results) Of(row Row) Outcome {
	worst := Passed
	for _, e := range row.Evidence {
		switch o := r.of(e); {
		case o == Failed:
			return Failed
		case o == NotRun, o == Missed && worst == Passed:
			worst = o
		}
	}
	return worst
}

func (r Results) of(evidence string) Outcome {
	figure, isFigure := strings.CutPrefix(evidence, "figure:")
	if !isFigure {
		if o, ok := r.tests[evidence]; ok {
			return o
		}
		return NotRun
	}
	l, err := bound(figure)
	if err != nil {
		return NotRun
	}
	return r.meets(l)
}
