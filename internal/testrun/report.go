package testrun

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// keptLines bounds what is kept of one test's output, in lines: the last ones.
const keptLines = 200

// report turns events into what a person reads.
type report struct {
	w      io.Writer
	sum    Summary
	output map[string][]string // of each test that has not ended, by package and name
}

func newReport(w io.Writer) *report { return &report{w: w, output: map[string][]string{}} }

func (r *report) add(e Event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		r.keep(key, e)
	case "pass":
		r.passed(e)
		delete(r.output, key)
	case "skip":
		if e.Test != "" {
			r.sum.Skipped++
			fmt.Fprintf(r.w, "skipped: %s %s\n", e.Package, e.Test)
		}
		delete(r.output, key)
	case "fail":
		r.failed(e, key)
		delete(r.output, key)
	}
}

// keep stores output; the closing line of a package is passed on at once.
func (r *report) keep(key string, e Event) {
	if e.Test == "" && closing(e.Output) {
		fmt.Fprint(r.w, e.Output)
		return
	}
	kept := append(r.output[key], e.Output)
	r.output[key] = kept[max(0, len(kept)-keptLines):]
}

func closing(line string) bool {
	for _, start := range []string{"ok  \t", "FAIL\t", "---", "panic: "} {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	return false
}

func (r *report) passed(e Event) {
	if e.Test != "" {
		r.sum.Passed++
	}
}

func (r *report) failed(e Event, key string) {
	if e.Test != "" {
		r.sum.Failed++
		fmt.Fprintf(r.w, "\n--- failed: %s %s\n", e.Package, e.Test)
	}
	if e.Package != "" && !slices.Contains(r.sum.FailedPackages, e.Package) {
		r.sum.FailedPackages = append(r.sum.FailedPackages, e.Package)
	}
	for _, line := range r.output[key] {
		fmt.Fprint(r.w, line)
	}
}

// finish adds the one line that closes everything.
func (r *report) finish(err error) (Summary, error) {
	if err == nil {
		err = r.sum.Err()
	}
	for _, lines := range r.output { // of builds that failed: under no package
		if err != nil && len(r.sum.FailedPackages) > 0 && r.sum.Failed == 0 {
			fmt.Fprint(r.w, strings.Join(lines, ""))
		}
	}
	fmt.Fprintf(r.w, "%d passed, %d failed\n", r.sum.Passed, r.sum.Failed+r.broken())
	return r.sum, err
}

// broken is 1 when packages failed without a test of theirs.
func (r *report) broken() int {
	if len(r.sum.FailedPackages) > 0 && r.sum.Failed == 0 {
		return 1
	}
	return 0
}
