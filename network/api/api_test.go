package api

import (
	"strings"
	"testing"
)

func TestLifeIsThirtyTwoLowerCaseHexDigits(t *testing.T) {
	for s, want := range map[string]bool{
		strings.Repeat("0f", 16):       true,
		strings.Repeat("0F", 16):       false,
		strings.Repeat("0f", 15) + "0": false,
		strings.Repeat("0f", 16) + "0": false,
		strings.Repeat("0g", 16):       false,
		"":                             false,
	} {
		if got := ValidLife(s); got != want {
			t.Errorf("ValidLife(%q): got %v, want %v", s, got, want)
		}
	}
}
