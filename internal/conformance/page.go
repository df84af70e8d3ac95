package conformance

import (
	"fmt"
	"strings"
)

// Head begins the page.
const Head = "# What is shown\n\n" +
	"Made by `make conformance` from the tables in `docs/conformance` and the results that the last `make test` or\n" +
	"`make check` on the machine of the commit left; do not edit. A sentence that nothing shows says so.\n"

// Part writes a table as a part of the page, for people.
func Part(title, source string, rows []Row, results Results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", title)
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
	fmt.Fprintf(&b, "From `%s`. %d sentences: %d passed, %d failed, %d missed, %d not run, %d that nothing shows yet.\n\n", source, len(rows),
		counts[string(Passed)], counts[string(Failed)], counts[string(Missed)], counts[string(NotRun)], counts["nothing shows it yet"])
	b.WriteString("| | what is to be so | shown by | last |\n|---|---|---|---|\n")
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
