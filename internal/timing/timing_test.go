package timing

import (
	"context"
	"regexp"
	"testing"
	"time"
)

func TestPhasesAreWrittenAsAServerTimingHeader(t *testing.T) {
	ctx, times := With(context.Background())
	Phase(ctx, "wait")()
	Phase(ctx, "engine")()
	Phase(ctx, "wait")()
	got := times.Header(1500 * time.Microsecond)
	if !regexp.MustCompile(`^wait;dur=\d+\.\d{3}, engine;dur=\d+\.\d{3}, total;dur=1\.500$`).MatchString(got) {
		t.Errorf("got %q, want each phase once, in order, and the total", got)
	}
}

func TestAContextThatNotesNoneIsFree(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Phase(context.Background(), "x")() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
