package conformance

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"cubesandbox/internal/testrun"
)

// Outcome is how a piece of evidence went the last time.
type Outcome string

// The outcomes. NotRun also stands for a test that began and did not end.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	NotRun Outcome = "not run"
)

// Results are the outcomes by evidence, as rows name it.
type Results map[string]Outcome

// module is the path that folders of the tree have as packages.
const module = "cubesandbox"

// ReadResults reads what make test and make check have left in dir: go test -json
// in files of any name, and the runs of the product. A test that ran in more than
// one file has passed only if it passed in each.
func ReadResults(dir string) (Results, error) {
	results := Results{}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".json"); isRun(name) {
			outcome, err := readRun(file)
			if err != nil {
				return nil, err
			}
			results["run:"+name] = outcome
			continue
		}
		if err := results.readTests(file); err != nil {
			return nil, err
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
	if errors.Is(err, fs.ErrNotExist) {
		return NotRun, nil
	}
	if err != nil {
		return NotRun, err
	}
	var report struct {
		Result string            `json:"result"`
		Rows   []json.RawMessage `json:"rows"`
	}
	if json.Unmarshal(text, &report) != nil || report.Result != "PASS" && len(report.Rows) == 0 {
		return Failed, nil
	}
	return Passed, nil
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
		folder := strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/")
		if folder == "" {
			folder = "."
		}
		key := folder + ":" + e.Test
		switch {
		case e.Action == "fail":
			r[key] = Failed
		case e.Action == "pass" && r[key] != Failed:
			r[key] = Passed
		}
	}
	return scanner.Err()
}

// Of returns how all the evidence of a row went together: failed if any has,
// passed if all have.
func (r Results) Of(row Row) Outcome {
	all := Passed
	for _, e := range row.Evidence {
		switch r[e] {
		case Failed:
			return Failed
		case Passed:
		default:
			all = NotRun
		}
	}
	return all
}
