package process

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// read takes n bytes, and returns them with the offset of the first.
func read(t *testing.T, o *output, r *reader, n int) (got []byte) {
	t.Helper()
	for len(got) < n {
		p, err := o.take(t.Context(), r, nil)
		if err != nil || p.dropped != 0 {
			t.Fatalf("after %d of %d bytes: %d dropped, %v", len(got), n, p.dropped, err)
		}
		got = append(got, p.data...)
	}
	return got
}

func TestWhatWasReadCanBeReadAgainFromAnyOffset(t *testing.T) {
	o := newOutput(maxOutput, stall)
	want := pattern(3*blockSize + 100)
	for rest := want; len(rest) > 0; { // in parts that fit no block
		n := min(len(rest), 777)
		o.write(stdout, rest[:n])
		rest = rest[n:]
	}
	o.close()
	all(t, o, subscribed(t, o, stock))
	for _, at := range []int64{0, 1, 776, 777, blockSize, int64(len(want)) - 1, int64(len(want))} {
		if got, dropped := all(t, o, subscribed(t, o, from(at))); !bytes.Equal(got, want[at:]) || dropped != 0 {
			t.Errorf("from %d: %d bytes and %d dropped, want %d", at, len(got), dropped, len(want)-int(at))
		}
	}
	if got, dropped := all(t, o, subscribed(t, o, reading{resumes: true, tail: true})); !bytes.Equal(got, want) || dropped != 0 {
		t.Errorf("the tail has %d bytes and %d are dropped", len(got), dropped)
	}
}

func TestTheLastMiBIsKeptAndWhatWasBeforeIsToldAsDropped(t *testing.T) {
	o := newOutput(maxOutput, stall)
	want := pattern(maxOutput + 12345)
	o.write(stdout, want)
	o.close()
	got, dropped := all(t, o, subscribed(t, o, from(45)))
	if !bytes.Equal(got, want[12345:]) || dropped != 12300 {
		t.Errorf("%d bytes and %d dropped, want %d and 12300", len(got), dropped, maxOutput)
	}
	tail := subscribed(t, o, reading{resumes: true, tail: true})
	if got, dropped := all(t, o, tail); len(got) != maxOutput || dropped != 0 {
		t.Errorf("the tail has %d bytes and %d are dropped", len(got), dropped)
	}
}

func TestAnOffsetBeyondTheEndIsRefusedWithTheEnd(t *testing.T) {
	o := newOutput(maxOutput, stall)
	o.write(stdout, []byte("hello"))
	if r, beyond := o.subscribe(from(6)); r != nil || beyond == nil || beyond.end != 5 || beyond.other {
		t.Errorf("got %+v, %+v", r, beyond)
	}
	subscribed(t, o, from(5))
}

// TestAReaderWhoseStreamBrokeHoldsTheProcessForAMinute: it can write 1 MiB beyond what
// that reader is known to have. When a minute is over the oldest is dropped.
func TestAReaderWhoseStreamBrokeHoldsTheProcessForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(maxOutput, stall)
		o.write(stdout, make([]byte, 100))
		r := subscribed(t, o, from(40))
		read(t, o, r, 60)
		o.unsubscribe(r, false)
		o.write(stdout, make([]byte, maxOutput-60)) // up to 40 + 1 MiB
		began := time.Now()
		o.write(stdout, make([]byte, 10))
		if took := time.Since(began); took != stall {
			t.Errorf("the process was held for %v, want %v", took, stall)
		}
		o.close()
		if _, dropped := all(t, o, subscribed(t, o, from(40))); dropped != 10 {
			t.Errorf("%d dropped, want 10", dropped)
		}
	})
}

// TestAReaderThatComesBackIsWaitedForAgain: its next request says what it has, and makes
// room for as much.
func TestAReaderThatComesBackIsWaitedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(maxOutput, stall)
		want := pattern(maxOutput * 3)
		o.unsubscribe(subscribed(t, o, from(0)), false)
		go func() {
			o.write(stdout, want)
			o.close()
		}()
		got := []byte{}
		for turns := 0; ; turns++ {
			r := subscribed(t, o, from(int64(len(got))))
			for len(got) < len(want)*turns/8 {
				p, err := o.take(t.Context(), r, nil)
				if err != nil || p.dropped > 0 {
					t.Fatalf("%d dropped, %v", p.dropped, err)
				}
				got = append(got, p.data...)
			}
			o.unsubscribe(r, len(got) == len(want))
			if len(o.readers) > 1 {
				t.Fatalf("%d readers are waited for, and only one there is", len(o.readers))
			}
			if len(got) == len(want) {
				break
			}
			<-time.After(stall - time.Second) // away, but not for too long
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, want %d, or others", len(got), len(want))
		}
	})
}

// TestAWindowIsKeptUntilTheNextRequest: what may be on its way when a connection breaks is
// there again, however much was written since.
func TestAWindowIsKeptUntilTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(maxOutput, stall)
		want := pattern(maxOutput * 2)
		how := reading{resumes: true, window: maxOutput / 2}
		r := subscribed(t, o, how)
		go func() {
			o.write(stdout, want)
			o.close()
		}()
		if got := read(t, o, r, maxOutput/2); !bytes.Equal(got, want[:maxOutput/2]) {
			t.Fatal("the window has other bytes")
		}
		if _, err := o.take(t.Context(), r, nil); !errors.Is(err, errWindow) {
			t.Fatalf("after the window: %v", err)
		}
		o.unsubscribe(r, false)
		synctest.Wait()
		if o.start != 0 || o.end != maxOutput {
			t.Fatalf("from %d to %d is kept, want all from the window on, and 1 MiB", o.start, o.end)
		}
		how.from = maxOutput / 2
		next := subscribed(t, o, how)
		synctest.Wait()
		if o.start != maxOutput/2 || o.end != maxOutput*3/2 {
			t.Errorf("after the next request from %d to %d is kept", o.start, o.end)
		}
		o.unsubscribe(next, false)
		if got, dropped := all(t, o, subscribed(t, o, from(maxOutput/2))); !bytes.Equal(got, want[maxOutput/2:]) || dropped != 0 {
			t.Errorf("got %d bytes, %d dropped", len(got), dropped)
		}
	})
}

// TestTheLargestWindowHoldsUpNobody: though what the process writes at a time does not go
// into it without rest.
func TestTheLargestWindowHoldsUpNobody(t *testing.T) {
	for _, window := range []int64{maxOutput, maxOutput - 1, maxOutput - blockSize + 1} {
		synctest.Test(t, func(t *testing.T) {
			o := newOutput(maxOutput, stall)
			want := pattern(maxOutput * 5 / 2)
			o.unsubscribe(subscribed(t, o, reading{resumes: true, name: "me"}), false) // nothing is lost before it asks
			go func() {
				for rest := want; len(rest) > 0; {
					n := min(len(rest), 30_000)
					o.write(stdout, rest[:n])
					rest = rest[n:]
				}
				o.close()
			}()
			began := time.Now()
			var got []byte
			for turns := 0; turns < 10 && len(got) < len(want); turns++ {
				r := subscribed(t, o, reading{resumes: true, name: "me", from: int64(len(got)), window: window})
				got = append(got, read(t, o, r, int(min(window, int64(len(want)-len(got)))))...)
				o.unsubscribe(r, false)
			}
			if took := time.Since(began); took != 0 || !bytes.Equal(got, want) {
				t.Errorf("a window of %d: %d bytes of %d after %v, or others", window, len(got), len(want), took)
			}
		})
	}
}

func TestTheEndIsToldThoughTheWindowHasBeenRead(t *testing.T) {
	o := newOutput(maxOutput, stall)
	o.write(stdout, []byte("hello"))
	o.close()
	r := subscribed(t, o, reading{resumes: true, window: 5})
	read(t, o, r, 5)
	if _, err := o.take(t.Context(), r, nil); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

// TestTimeInAnImageIsNoTimeAway: a reader that was away for a second when the sandbox was
// saved has all the rest of its minute after an hour in the image.
func TestTimeInAnImageIsNoTimeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(maxOutput, stall)
		r := subscribed(t, o, from(0))
		o.unsubscribe(r, false)
		written := make(chan time.Time, 1)
		go func() {
			o.write(stdout, make([]byte, maxOutput+1))
			written <- time.Now()
		}()
		<-time.After(stall / 2)
		o.shift(time.Now(), time.Hour)
		shifted := time.Now()
		<-time.After(time.Hour)
		select {
		case <-written:
			t.Fatal("the time in the image counted")
		default:
		}
		if took := (<-written).Sub(shifted); took != time.Hour+stall/2 {
			t.Errorf("held for %v after the restore, want %v", took-time.Hour, stall/2)
		}
	})
}

func TestFewOfThoseThatAreAwayAreWaitedFor(t *testing.T) {
	o := newOutput(maxOutput, stall)
	for i := range 3 * maxAway {
		o.write(stdout, []byte{0})
		for a := range o.readers { // it is none of those: it has read less
			a.acked = int64(i + 2)
		}
		o.unsubscribe(subscribed(t, o, from(int64(i))), false)
	}
	if len(o.readers) != maxAway {
		t.Errorf("%d are waited for, want %d", len(o.readers), maxAway)
	}
}

// TestNothingIsTimedWhileNobodyIsAwayAndNobodyWaits: an idle agent wakes up for nothing.
func TestNothingIsTimedWhileNobodyIsAwayAndNobodyWaits(t *testing.T) {
	o := newOutput(maxOutput, stall)
	timed := func() bool {
		o.patience.mu.Lock()
		defer o.patience.mu.Unlock()
		return o.patience.timer != nil
	}
	r := subscribed(t, o, from(0))
	o.write(stdout, make([]byte, maxOutput))
	if timed() {
		t.Error("a timer runs for a reader that is connected and a process that does not wait")
	}
	o.unsubscribe(r, false)
	if !timed() {
		t.Error("no timer runs for a reader that is away")
	}
	read(t, o, subscribed(t, o, from(0)), maxOutput)
	if timed() {
		t.Error("a timer runs though it has come back")
	}
}

func TestWhatWasReadIsBoundedOverAllProcesses(t *testing.T) {
	var outputs []*output
	h := &history{outputs: func() []*output { return outputs }}
	h.read.max, h.loose.max = 4<<20+1<<10, 6<<20+1<<10 // 1 KiB for the segments
	kept := func() (sum int64) {
		for _, o := range outputs {
			sum += o.end - o.start
		}
		return sum
	}
	for range 12 {
		o := newOutput(maxOutput, stall)
		o.history = h
		outputs = append(outputs, o)
		r := subscribed(t, o, stock)
		o.write(stdout, make([]byte, maxOutput))
		read(t, o, r, maxOutput)
	}
	if got := kept(); got != 4<<20 {
		t.Errorf("%d bytes are kept, want %d", got, 4<<20)
	}
	if first, last := outputs[0], outputs[11]; first.start != first.end || last.start != 0 {
		t.Errorf("of the oldest %d bytes are kept, of the newest %d", first.end-first.start, last.end-last.start)
	}
	unread := newOutput(maxOutput, stall)
	unread.history = h
	outputs = append(outputs, unread)
	unread.write(stdout, make([]byte, maxOutput))
	read(t, outputs[11], subscribed(t, outputs[11], from(0)), maxOutput)
	if got, dropped := unread.end-unread.start, kept()-maxOutput; got != maxOutput || dropped != 4<<20 {
		t.Errorf("of what nobody has read %d bytes are kept, of all else %d", got, dropped)
	}
	for range 12 { // nor is there any number of processes of whose output nobody reads
		o := newOutput(maxOutput, stall)
		o.history = h
		outputs = append(outputs, o)
		o.write(stdout, make([]byte, maxOutput))
	}
	if kept() != 6<<20 {
		t.Errorf("%d bytes are kept of all, want %d", kept(), 6<<20)
	}
	reader := subscribed(t, outputs[len(outputs)-1], from(0))
	for range 12 { // what somebody is waited for stays
		o := newOutput(maxOutput, stall)
		o.history = h
		outputs = append(outputs, o)
		o.write(stdout, make([]byte, maxOutput))
	}
	read(t, outputs[len(outputs)-13], reader, maxOutput)
	for _, o := range outputs {
		o.release()
	}
	if kept() != 0 || h.read.total.Load() != 0 || h.loose.total.Load() != 0 {
		t.Errorf("%d bytes are kept of forgotten processes, by the book %d and %d", kept(), h.read.total.Load(), h.loose.total.Load())
	}
}

func TestAForgottenProcessIsStillReadToItsEnd(t *testing.T) {
	o := newOutput(maxOutput, stall)
	r := subscribed(t, o, stock)
	o.write(stdout, []byte("last words"))
	o.close()
	o.release()
	if got, dropped := all(t, o, r); string(got) != "last words" || dropped != 0 {
		t.Errorf("got %q, %d dropped", got, dropped)
	}
}

// TestAReaderWithANameIsNotWaitedForTwice: where it asks again before its broken stream is
// known to have broken, that holds up nobody for a minute.
func TestAReaderWithANameIsNotWaitedForTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(maxOutput, stall)
		o.write(stdout, make([]byte, maxOutput))
		named := from(0)
		named.name = "me"
		stuck := subscribed(t, o, named)
		ended := make(chan error)
		read(t, o, stuck, maxOutput)
		go func() {
			_, err := o.take(t.Context(), stuck, nil)
			ended <- err
		}()
		synctest.Wait()
		named.from = maxOutput
		now := subscribed(t, o, named)
		if err := <-ended; !errors.Is(err, errReplaced) {
			t.Errorf("the earlier stream: %v", err)
		}
		o.unsubscribe(stuck, false)
		other := subscribed(t, o, reading{resumes: true, from: maxOutput, name: "other"})
		if len(o.readers) != 2 {
			t.Errorf("%d readers, want the later one and another", len(o.readers))
		}
		began := time.Now()
		o.write(stdout, make([]byte, maxOutput))
		if took := time.Since(began); took != 0 {
			t.Errorf("the process was held up for %v", took)
		}
		read(t, o, now, maxOutput)
		read(t, o, other, maxOutput)
	})
}
