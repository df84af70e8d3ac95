package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestNoRowOfTheReferencesIsLeftOut: the notes on what clients need are not in this
// repository, so what is counted here is how many rows each of their parts has, and
// which of them nothing shows yet, by name.
func TestNoRowOfTheReferencesIsLeftOut(t *testing.T) {
	for file, want := range map[string]struct {
		parts map[string]int
		open  []string
	}{
		"e2b-envd.tsv":       {map[string]int{"2.1": 7, "2.2": 14, "2.3": 36, "2.4": 14, "2.5": 5, "2.6": 4}, []string{"2.2.11", "2.3.34"}},
		"e2b-reports.tsv":    {map[string]int{"6": 32}, []string{"6.16", "6.17", "6.18", "6.19"}},
		"cube-dataplane.tsv": {map[string]int{"1.8": 12, "2.4": 6}, []string{"1.8.11"}},
	} {
		path := "../../docs/conformance/" + file
		rows, err := ReadRows(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check("../..", path, rows); err != nil {
			t.Error(err)
		}
		parts, open := map[string]int{}, []string{}
		for _, row := range rows {
			dot := strings.LastIndexByte(row.Key, '.')
			part := row.Key[:max(dot, 0)]
			parts[part]++
			if next := fmt.Sprintf("%s.%d", part, parts[part]); row.Key != next {
				t.Errorf("%s: %s comes where %s should", file, row.Key, next)
			}
			if row.Sentence == "" {
				t.Errorf("%s: %s says nothing", file, row.Key)
			}
			if len(row.Evidence) == 0 {
				open = append(open, row.Key)
			}
		}
		if !maps.Equal(parts, want.parts) {
			t.Errorf("%s has %v rows, want %v", file, parts, want.parts)
		}
		if !slices.Equal(open, want.open) {
			t.Errorf("%s: nothing shows %v, want %v", file, open, want.open)
		}
	}
}
