package cli

import (
	"strings"
	"unicode"
)

// plain is a text without what a terminal would obey, but for its lines. Guests may have
// had a hand in it.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return -1
		}
		return r
	}, s)
}

// cell is plain on one line, for a table.
func cell(s string) string { return strings.ReplaceAll(plain(s), "\n", " ") }
