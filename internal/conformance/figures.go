package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// limit is a bound on a figure: a number, or so many times another figure of the
// same run.
type limit struct {
	name   string
	most   float64
	factor string // the other figure, or ""
}

// bound reads NAME<=N or NAME<=N*OTHER. A name is that of a row of cube bench, or
// that with ":cpu" for its CPU time.
func bound(text string) (limit, error) {
	name, right, ok := strings.Cut(text, "<=")
	number, other, times := strings.Cut(right, "*")
	most, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || name == "" || times && other == "" {
		return limit{}, fmt.Errorf("%q: want NAME<=N or NAME<=N*OTHER, with names of rows of cube bench", text)
	}
	return limit{name, most, other}, nil
}

// meets compares with what was measured.
func (r Results) meets(l limit) Outcome {
	got, measured := r.figures[l.name]
	if l.factor != "" {
		other, ok := r.figures[l.factor]
		measured = measured && ok
		l.most *= other
	}
	switch {
	case !measured:
		return NotRun
	case got > l.most:
		return Missed
	}
	return Passed
}

// readFigures takes the rows out of a report of cube bench; other reports have none.
func (r Results) readFigures(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var report struct {
		Rows []struct {
			Name  string   `json:"name"`
			P50   *float64 `json:"p50_ms"`
			CPU   *float64 `json:"cpu_ms"`
			Value *float64 `json:"value"`
		} `json:"rows"`
	}
	if json.Unmarshal(text, &report) != nil {
		return nil // what is no report has failed as a run
	}
	for _, row := range report.Rows {
		switch {
		case row.Value != nil && *row.Value != 0:
			r.figures[row.Name] = *row.Value
		case row.P50 != nil:
			r.figures[row.Name] = *row.P50
		}
		if row.CPU != nil {
			r.figures[row.Name+":cpu"] = *row.CPU
		}
	}
	return nil
}
