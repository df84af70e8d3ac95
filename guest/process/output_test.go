package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"
)

// all reads to the end of an output, and returns what came and how much did not.
func all(t *testing.T, o *output, r *reader) (got []byte, dropped int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		p, err := o.take(ctx, r, nil)
		if errors.Is(err, io.EOF) {
			return got, dropped
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p.data...)
		dropped += p.dropped
	}
}

// subscribed is a reader of an output.
func subscribed(t *testing.T, o *output, how reading) *reader {
	t.Helper()
	r, beyond := o.subscribe(how)
	if beyond != nil {
		t.Fatal(beyond.connectError())
	}
	return r
}

// stock reads as a client of E2B does, from as one that takes its output up again.
var stock = reading{}

func from(offset int64) reading { return reading{resumes: true, from: offset} }

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
	r := subscribed(t, o, stock)
	want := pattern(1 << 20)
	go func() {
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 5000)
			o.write(stdout, rest[:n])
			rest = rest[n:]
		}
		o.close()
	}()
	if got, dropped := all(t, o, r); !bytes.Equal(got, want) || dropped != 0 {
		t.Errorf("%d bytes and %d dropped, want %d, or others", len(got), dropped, len(want))
	}
}

func TestTwoWritersAreBothWokenByProgress(t *testing.T) {
	o := newOutput(blockSize, time.Hour) // nothing but progress may wake them
	r := subscribed(t, o, stock)
	done := make(chan struct{}, 2)
	for _, s := range []stream{stdout, stderr} {
		go func() {
			for range 50 {
				o.write(s, make([]byte, blockSize))
			}
			done <- struct{}{}
		}()
	}
	go func() {
		<-done
		<-done
		o.close()
	}()
	if got, dropped := all(t, o, r); len(got) != 100*blockSize || dropped != 0 {
		t.Errorf("%d bytes and %d dropped, want %d", len(got), dropped, 100*blockSize)
	}
}

func TestStalledReaderStopsNobodyForEverAndIsToldWhatItLost(t *testing.T) {
	const size, n = 4 * blockSize, 20
	o := newOutput(size, 20*time.Millisecond)
	slow := subscribed(t, o, stock)
	for range n {
		o.write(stdout, make([]byte, blockSize)) // would never return if it waited for ever
	}
	o.close()
	if got, dropped := all(t, o, slow); len(got) != size || dropped != n*blockSize-size {
		t.Errorf("%d bytes and %d dropped, want the newest %d of %d", len(got), dropped, size, n*blockSize)
	}
}

func TestStalledReaderDoesNotSlowOthersForLong(t *testing.T) {
	o := newOutput(2*blockSize, 20*time.Millisecond)
	subscribed(t, o, stock)
	fast := subscribed(t, o, stock)
	want := pattern(30 * blockSize)
	go func() {
		o.write(stdout, want)
		o.close()
	}()
	if got, dropped := all(t, o, fast); !bytes.Equal(got, want) || dropped != 0 {
		t.Errorf("the reader that kept up got %d of %d bytes, and %d were dropped", len(got), len(want), dropped)
	}
}

func TestWithoutReadersTheNewestIsKeptForTheNext(t *testing.T) {
	o := newOutput(4*blockSize, time.Minute)
	want := pattern(100 * blockSize)
	for rest := want; len(rest) > 0; rest = rest[blockSize:] {
		o.write(stdout, rest[:blockSize])
	}
	o.close()
	got, dropped := all(t, o, subscribed(t, o, stock))
	if !bytes.Equal(got, want[96*blockSize:]) || dropped != 96*blockSize {
		t.Errorf("got %d bytes that do not end as written, and %d dropped", len(got), dropped)
	}
}

func TestSecondStockReaderGetsOnlyWhatIsNew(t *testing.T) {
	o := newOutput(1<<20, time.Minute)
	first := subscribed(t, o, stock)
	o.write(stdout, []byte("old"))
	if p, _ := o.take(context.Background(), first, nil); string(p.data) != "old" {
		t.Fatalf("first reader got %q", p.data)
	}
	second := subscribed(t, o, stock)
	o.write(stderr, []byte("new"))
	o.close()
	if got, _ := all(t, o, second); string(got) != "new" {
		t.Errorf("second reader got %q, want new", got)
	}
	o.unsubscribe(first, false)
	o.unsubscribe(second, true)
	if got, _ := all(t, o, subscribed(t, o, stock)); len(got) != 0 {
		t.Errorf("third reader got %q, which others had read", got)
	}
}

func TestNoMoreThanTheNewestIsKept(t *testing.T) {
	o := newOutput(1<<20, time.Minute)
	r := subscribed(t, o, stock)
	for range 1000 {
		o.write(stdout, make([]byte, blockSize-1))
		o.take(context.Background(), r, nil)
	}
	held := 0
	for _, b := range o.blocks {
		held += cap(b.data)
	}
	if o.end-o.start != 1<<20 || held > 1<<20+4*blockSize {
		t.Errorf("%d bytes are kept in %d, want 1 MiB", o.end-o.start, held)
	}
}

func TestStreamsAreNotMixedAndOffsetsCountThemTogether(t *testing.T) {
	o := newOutput(1<<20, time.Minute)
	o.write(stdout, []byte("a"))
	o.write(stdout, []byte("b"))
	o.write(stderr, []byte("c"))
	o.write(terminal, make([]byte, eventPTY+1))
	o.close()
	r := subscribed(t, o, stock)
	for _, want := range []struct {
		s      stream
		n      int
		offset int64
	}{{stdout, 2, 0}, {stderr, 1, 2}, {terminal, eventPTY, 3}, {terminal, 1, 3 + eventPTY}} {
		p, err := o.take(context.Background(), r, nil)
		if err != nil || p.stream != want.s || len(p.data) != want.n || p.offset != want.offset {
			t.Errorf("stream %d with %d bytes at %d, %v; want %+v", p.stream, len(p.data), p.offset, err, want)
		}
	}
}

func TestTakeEndsWithItsContextAndOnIdle(t *testing.T) {
	o := newOutput(1<<20, time.Minute)
	r := subscribed(t, o, stock)
	idle := make(chan time.Time, 1)
	idle <- time.Time{}
	<-r.ready // the wake-up of subscribe
	if p, err := o.take(context.Background(), r, idle); p.data != nil || p.dropped != 0 || err != nil {
		t.Errorf("idle gave %+v, %v", p, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := o.take(ctx, r, nil); err != context.Canceled {
		t.Errorf("error %v", err)
	}
}
