package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "what happens\ttook\tPID\tcounter\tidentity\t")
	fmt.Fprintln(t, strings.Repeat("─", 34)+"\t"+strings.Repeat("─", 8)+"\t───\t───────\t"+strings.Repeat("─", 12)+"\t"+strings.Repeat("─", 26))
	for _, s := range r.Steps {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Step, millis(s.Millis), number(s.PID), number(s.Counter), s.Identity, s.Note)
	}
	return t.Flush()
}

func millis(ms float64) string {
	switch {
	case ms == 0:
		return ""
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
