package process

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// all reads to the end of an output.
func all(t *testing.T, o *output, r *reader) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var got []byte
	for {
		_, data, more, err := o.next(ctx, r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return got
		}
		got = append(got, data...)
	}
}

// pattern is n bytes of which each part differs from its neighbours.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i / 7)
	}
	return b
}

func TestReaderThatKeepsUpGetsAll(t *testing.T) {
	o := newOutput(64<<10, time.Minute)
	r := o.subscribe()
	want := pattern(1 << 20)
	go func() {
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 5000)
			o.write(stdout, rest[:n])
			rest = rest[n:]
		}
		o.end()
	}()
	if got := all(t, o, r); !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d, or others", len(got), len(want))
	}
}

func TestTwoWritersAreBothWokenByProgress(t *testing.T) {
	o := newOutput(chunkStd, time.Hour) // nothing but progress may wake them
	r := o.subscribe()
	done := make(chan struct{}, 2)
	for _, s := range []stream{stdout, stderr} {
		go func() {
			for range 50 {
				o.write(s, make([]byte, chunkStd))
			}
			done <- struct{}{}
		}()
	}
	go func() {
		<-done
		<-done
		o.end()
	}()
	if got := len(all(t, o, r)); got != 100*chunkStd {
		t.Errorf("%d bytes, want %d", got, 100*chunkStd)
	}
}

func TestStalledReaderStopsNobodyAndIsToldWhatItLost(t *testing.T) {
	const size, n = 4 * chunkStd, 20
	o := newOutput(size, 20*time.Millisecond)
	slow := o.subscribe()
	for range n {
		o.write(stdout, make([]byte, chunkStd)) // would never return if it waited for ever
	}
	o.end()
	got := string(all(t, o, slow))
	if want := "[cube: 524288 bytes of output dropped: the reader was too slow]"; !strings.Contains(got, want) {
		t.Errorf("no %q in %.200q", want, got)
	}
	if zeros := strings.Count(got, "\x00"); zeros != size {
		t.Errorf("%d bytes are left, want the newest %d", zeros, size)
	}
}

func TestStalledReaderDoesNotSlowOthersForLong(t *testing.T) {
	o := newOutput(2*chunkStd, 20*time.Millisecond)
	o.subscribe()
	fast := o.subscribe()
	want := pattern(30 * chunkStd)
	go func() {
		o.write(stdout, want)
		o.end()
	}()
	got := all(t, o, fast)
	if !bytes.Contains(got, want[len(want)-chunkStd:]) {
		t.Errorf("the reader that kept up got %d bytes without the end", len(got))
	}
}

func TestWithoutReadersTheNewestIsKeptForTheNext(t *testing.T) {
	o := newOutput(4*chunkStd, time.Minute)
	want := pattern(100 * chunkStd)
	for rest := want; len(rest) > 0; rest = rest[chunkStd:] {
		o.write(stdout, rest[:chunkStd])
	}
	o.end()
	if o.size > o.max {
		t.Errorf("%d bytes are held, at most %d may be", o.size, o.max)
	}
	got := all(t, o, o.subscribe())
	if !bytes.HasSuffix(got, want[len(want)-4*chunkStd:]) || !bytes.Contains(got, []byte("dropped")) {
		t.Errorf("got %d bytes that do not end as written", len(got))
	}
}

func TestSecondReaderGetsOnlyWhatIsNew(t *testing.T) {
	o := newOutput(1<<20, time.Minute)
	first := o.subscribe()
	o.write(stdout, []byte("old"))
	if _, data, _, _ := o.next(context.Background(), first, nil); string(data) != "old" {
		t.Fatalf("first reader got %q", data)
	}
	second := o.subscribe()
	o.write(stderr, []byte("new"))
	o.end()
	if got := all(t, o, second); string(got) != "new" {
		t.Errorf("second reader got %q, want new", got)
	}
	o.unsubscribe(first)
	o.unsubscribe(second)
	if got := all(t, o, o.subscribe()); len(got) != 0 {
		t.Errorf("third reader got %q, which others had read", got)
	}
}

func TestWhatWasReadIsForgotten(t *testing.T) {
	o := newOutput(1<<20, time.Minute)
	r := o.subscribe()
	for range 100 {
		o.write(stdout, make([]byte, chunkStd))
		o.next(context.Background(), r, nil)
	}
	if o.size != 0 || len(o.chunks) != 0 {
		t.Errorf("%d bytes in %d chunks are held after all was read", o.size, len(o.chunks))
	}
}

func TestStreamsAreNotMixed(t *testing.T) {
	o := newOutput(1<<20, time.Minute)
	o.write(stdout, []byte("a"))
	o.write(stdout, []byte("b"))
	o.write(stderr, []byte("c"))
	o.write(terminal, make([]byte, chunkPTY+1))
	o.end()
	r := o.subscribe()
	for _, want := range []struct {
		s stream
		n int
	}{{stdout, 2}, {stderr, 1}, {terminal, chunkPTY}, {terminal, 1}} {
		s, data, _, err := o.next(context.Background(), r, nil)
		if err != nil || s != want.s || len(data) != want.n {
			t.Errorf("stream %d with %d bytes, %v; want %d with %d", s, len(data), err, want.s, want.n)
		}
	}
}

func TestNextEndsWithItsContextAndOnIdle(t *testing.T) {
	o := newOutput(1<<20, time.Minute)
	r := o.subscribe()
	idle := make(chan time.Time, 1)
	idle <- time.Time{}
	<-r.ready // the wake-up of subscribe
	if _, data, more, err := o.next(context.Background(), r, idle); data != nil || !more || err != nil {
		t.Errorf("idle gave %q, %v, %v", data, more, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, _, err := o.next(ctx, r, nil); err != context.Canceled {
		t.Errorf("error %v", err)
	}
}
