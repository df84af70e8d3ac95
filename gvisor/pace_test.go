package gvisor

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestEventsOfOneSandboxAreToldAtABoundedRate(t *testing.T) {
	var p pace
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	told, last := 0, ""
	for range 10_000 { // over 100 s
		now = now.Add(10 * time.Millisecond)
		if p.admit(now) {
			told++
			last = p.detail("killed")
		}
	}
	if most := eventBurst + 101; told > most || told < 100 {
		t.Errorf("%d of 10,000 in 100 s are told, want one a second and %d more", told, eventBurst)
	}
	if last != "killed (and 99 events before that were left out)" {
		t.Errorf("the last one says %q", last)
	}
	now = now.Add(time.Hour)
	for n := range eventBurst {
		if !p.admit(now) {
			t.Errorf("after an hour without any, the %dth at once is left out", n+1)
		}
	}
	if p.admit(now) {
		t.Errorf("more than %d at once are told", eventBurst)
	}
}

func FuzzWhatAnAgentSaysIsOneHarmlessLine(f *testing.F) {
	for _, s := range []string{"killed python3", "a\nb", "\x1b[2J\x00\r", "\xff\xfe", strings.Repeat("ü", 1000), "\u202eabc\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := oneLine(s)
		if len(got) > maxDetail || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			t.Errorf("%q becomes %q", s, got)
		}
	})
}
