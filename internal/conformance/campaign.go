package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// campaigns are the tables that the campaign of make check leaves, by file, and what
// each is of.
var campaigns = []struct{ file, title string }{
	{"faults", "the server is killed"},
	{"faults-twice", "and the next one too"},
	{"failures", "it fails, panics or waits"},
	{"blows", "another process is killed or stopped"},
}

// Campaigns is the part of the page with points × verbs: in how many cases each verb
// was struck at one of its boundaries, and what was lost or left. Empty without
// results.
func Campaigns(dir string) (string, error) {
	verbs, tables := map[string]bool{}, make([]campaign, len(campaigns))
	for i, c := range campaigns {
		b, err := os.ReadFile(filepath.Join(dir, c.file+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(b, &tables[i])
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", c.file, err)
		}
		for _, r := range tables[i].Rows {
			verbs[r.Verb] = true
		}
	}
	if len(verbs) == 0 {
		return "", nil
	}
	var b strings.Builder
	b.WriteString("## Struck at the boundaries of verbs\n\nHow many times each verb was struck at one of its fail points by the last `make check`, and in how\n" +
		"many of these something was lost or left. What is done to it: `e2e/campaign`.\n\n| verb |")
	for _, c := range campaigns {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(campaigns)) + "\n")
	for _, v := range slices.Sorted(maps.Keys(verbs)) {
		fmt.Fprintf(&b, "| %s |", v)
		for _, t := range tables {
			fmt.Fprintf(&b, " %s |", t.of(v))
		}
		b.WriteString("\n")
	}
	b.WriteString("| **all** |")
	for _, t := range tables {
		fmt.Fprintf(&b, " %d, %d lost, %d left |", t.Cases, t.Lost, t.Left)
	}
	return b.String() + "\n", nil
}

// campaign is one table.
type campaign struct {
	Cases int `json:"cases"`
	Lost  int `json:"lost"`
	Left  int `json:"left"`
	Rows  []struct {
		Verb string `json:"verb"`
		At   string `json:"at"`
		Lost string `json:"lost"`
		Left string `json:"left"`
	} `json:"rows"`
}

// of sums up what happened to a verb: cases at points, and what went wrong.
func (c campaign) of(verb string) string {
	cases, wrong, points := 0, 0, map[string]bool{}
	for _, r := range c.Rows {
		if r.Verb != verb {
			continue
		}
		point, _, _ := strings.Cut(r.At, "#")
		points[point] = true
		if cases++; r.Lost+r.Left != "" {
			wrong++
		}
	}
	if cases == 0 {
		return ""
	}
	return fmt.Sprintf("%d at %d points, %d wrong", cases, len(points), wrong)
}
