package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// bound splits NAME<=N.
func bound(text string) (name string, most float64, err error) {
	name, number, ok := strings.Cut(text, "<=")
	most, err = strconv.ParseFloat(number, 64)
	if !ok || err != nil || name == "" {
		return "", 0, fmt.Errorf("%q: want NAME<=N, with the name of a row of cube bench", text)
	}
	return name, most, nil
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
	}
	return nil
}
