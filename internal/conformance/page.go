package conformance

import (
	"fmt"
	"strings"
)

// Page writes the table as a page for people.
func Page(title, source string, rows []Row, results Results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", title)
	fmt.Fprintf(&b, "Made by `make conformance` from `%s` and the results that the last `make test` or `make check` on the\n"+
		"machine of the commit left; do not edit. A sentence that nothing shows says so.\n\n", source)
	counts := map[string]int{}
	var table strings.Builder
	for _, row := range rows {
		last := "nothing shows it yet"
		if len(row.Evidence) > 0 {
			last = string(results.Of(row))
		}
		counts[last]++
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", row.Key, escape(row.Sentence), evidence(row), last)
	}
	fmt.Fprintf(&b, "%d sentences: %d passed, %d failed, %d missed, %d not run, %d that nothing shows yet.\n\n", len(rows),
		counts[string(Passed)], counts[string(Failed)], counts[string(Missed)], counts[string(NotRun)], counts["nothing shows it yet"])
	b.WriteString("| | the issue says | shown by | last |\n|---|---|---|---|\n")
	b.WriteString(table.String())
	return b.String()
}

func evidence(row Row) string {
	quoted := make([]string, len(row.Evidence))
	for i, e := range row.Evidence {
		quoted[i] = "`" + e + "`"
	}
	return strings.Join(quoted, "<br>")
}

func escape(text string) string { return strings.ReplaceAll(text, "|", "\\|") }
