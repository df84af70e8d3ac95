// Command conformance writes docs/conformance.md from the tables under
// docs/conformance and the last results. It fails when a table names a test that
// does not exist, and when evidence has failed.
package main

import (
	"fmt"
	"os"

	"cubesandbox/internal/conformance"
)

const (
	table = "docs/conformance/issue-2.tsv"
	page  = "docs/conformance.md"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "conformance: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	rows, err := conformance.ReadRows(table)
	if err != nil {
		return err
	}
	if err := conformance.Check(".", table, rows); err != nil {
		return err
	}
	results, err := conformance.ReadResults(".cache/results")
	if err != nil {
		return err
	}
	text := conformance.Page("The engine: what is shown", table, rows, results)
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		return err
	}
	failed := 0
	for _, row := range rows {
		if results.Of(row) == conformance.Failed {
			failed++
			fmt.Printf("failed: %s %s\n", row.Key, row.Sentence)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d sentences are not so; see %s", failed, page)
	}
	fmt.Printf("%s: %d sentences, none failed\n", page, len(rows))
	return nil
}
