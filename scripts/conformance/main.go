// Command conformance writes docs/conformance.md from the tables under
// docs/conformance and the last results. It fails when a table names a test that
// does not exist, and when evidence has failed.
package main

import (
	"fmt"
	"os"

	"cubesandbox/internal/conformance"
)

// tables have a part of the page each.
var tables = []struct{ title, file string }{
	{"What E2B's clients need of the guest and the data plane", "docs/conformance/e2b-envd.tsv"},
	{"What users of E2B have reported", "docs/conformance/e2b-reports.tsv"},
	{"What CubeSandbox's clients need of the data plane and the guest", "docs/conformance/cube-dataplane.tsv"},
	{"Issue 6: the whole guest", "docs/conformance/issue-6.tsv"},
	{"Issue 5: what copies share", "docs/conformance/issue-5.tsv"},
	{"Issue 4: nothing is ever lost", "docs/conformance/issue-4.tsv"},
	{"Issue 3: the service", "docs/conformance/issue-3.tsv"},
	{"Issue 2: the engine", "docs/conformance/issue-2.tsv"},
}

const page = "docs/conformance.md"

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "conformance: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	results, err := conformance.ReadResults(".cache/results")
	if err != nil {
		return err
	}
	text, sentences, failed := conformance.Head, 0, 0
	for _, t := range tables {
		rows, err := conformance.ReadRows(t.file)
		if err != nil {
			return err
		}
		if err := conformance.Check(".", t.file, rows); err != nil {
			return err
		}
		text += "\n" + conformance.Part(t.title, t.file, rows, results)
		sentences += len(rows)
		for _, row := range rows {
			if results.Of(row) == conformance.Failed {
				failed++
				fmt.Printf("failed: %s: %s %s\n", t.title, row.Key, row.Sentence)
			}
		}
	}
	struck, err := conformance.Campaigns(".cache/results")
	if err != nil {
		return err
	}
	if struck != "" {
		text += "\n" + struck
	}
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d sentences are not so; see %s", failed, page)
	}
	fmt.Printf("%s: %d sentences, none failed\n", page, sentences)
	return nil
}
