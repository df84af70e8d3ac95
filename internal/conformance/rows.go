// Package conformance shows what of an issue is shown, and by what: a table kept
// by hand names for each of its sentences the tests and runs that show it; this
// package checks that they exist and adds how they went the last time.
package conformance

import (
	"fmt"
	"os"
	"strings"
)

// Row is one sentence of an issue.
type Row struct {
	// Key places the sentence: "1.2" is the second of point 1, "S.1" the first
	// under "Shown by".
	Key string
	// Sentence in short.
	Sentence string
	// Evidence names tests as FOLDER:TestName (a subtest with its slash), runs of
	// the product as run:NAME, and bounds of a row of cube bench as
	// figure:NAME<=N. Empty: nothing shows it yet.
	Evidence []string
	line     int
}

// ReadRows reads a table: lines of key, sentence and evidence, with a tab between
// and semicolons within the last. Lines that begin with # are comments.
func ReadRows(file string) ([]Row, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var rows []Row
	seen := map[string]bool{}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s:%d: %d fields: want key, sentence and evidence with tabs between; write - for no evidence", file, i+1, len(fields))
		}
		row := Row{Key: fields[0], Sentence: fields[1], line: i + 1}
		if seen[row.Key] {
			return nil, fmt.Errorf("%s:%d: %s is there twice; number it anew", file, i+1, row.Key)
		}
		seen[row.Key] = true
		if fields[2] != "-" {
			for _, e := range strings.Split(fields[2], ";") {
				row.Evidence = append(row.Evidence, strings.TrimSpace(e))
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}
