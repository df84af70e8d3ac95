package process

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
)

// TestWhatReadersThatAreAwayAreWaitedForIsBoundedOverAllProcesses: else each process that
// somebody starts and turns away from costs 1 MiB, and each one that has ended.
func TestWhatReadersThatAreAwayAreWaitedForIsBoundedOverAllProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outputs []*output
		h := &history{outputs: func() []*output { return outputs }}
		h.read.max, h.loose.max, h.away.max = 1<<20, 2<<20+1<<10, 4<<20+1<<10
		add := func(n int) {
			for range n {
				o := newOutput(maxOutput, time.Hour)
				o.history = h
				outputs = append(outputs, o)
				o.unsubscribe(subscribed(t, o, from(0)), false)
				<-time.After(time.Second)
				o.write(stdout, make([]byte, maxOutput))
			}
		}
		add(10)
		for i, o := range outputs {
			want := int64(maxOutput)
			if i < 4 { // of 6 that were given up 2 MiB are kept, as of all that nobody waits for
				want = 0
			}
			if n := len(o.readers); (n == 0) != (i < 6) || o.end-o.start != want {
				t.Errorf("of process %d, of 10, %d bytes are kept and %d readers are waited for", i, o.end-o.start, n)
			}
		}
		read(t, outputs[9], subscribed(t, outputs[9], from(0)), maxOutput) // it came back in time
		written := make(chan struct{})
		go func() {
			outputs[6].write(stdout, make([]byte, 1))
			close(written)
		}()
		synctest.Wait()
		select {
		case <-written:
			t.Fatal("a process did not wait for a reader that is away")
		default:
		}
		began := time.Now()
		add(4)
		<-written
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the process went on %v after its reader was to be given up", took)
		}
		for _, o := range outputs {
			o.release()
		}
		if n := h.read.total.Load() + h.loose.total.Load() + h.away.total.Load(); n != 0 {
			t.Errorf("by the book %d bytes are kept of forgotten processes", n)
		}
	})
}

// TestSegmentsCountAsMemory: output that changes the stream with each byte takes five times
// its length.
func TestSegmentsCountAsMemory(t *testing.T) {
	o := newOutput(3*blockSize, time.Hour)
	o.history = &history{}
	o.history.loose.max, o.history.read.max = 1<<30, 1<<30
	for i := range 4*blockSize + 10 {
		o.write(stream(i%2), []byte{0})
	}
	if got, want := o.history.loose.total.Load(), (1+segmentSize)*o.max; got != want {
		t.Errorf("%d bytes are counted, want %d", got, want)
	}
	o.write(stdout, bytes.Repeat([]byte{1}, blockSize))
	if got, want := o.history.loose.total.Load(), (1+segmentSize)*2*blockSize+blockSize+segmentSize; got != int64(want) {
		t.Errorf("%d bytes are counted, want %d", got, want)
	}
	read(t, o, subscribed(t, o, from(o.start)), 1000)
	if got, want := o.history.read.total.Load(), int64(1000*(1+segmentSize)); got != want {
		t.Errorf("%d bytes are counted as read, want %d", got, want)
	}
	o.release()
	o.dropLoose()
}

// TestAnEndedProcessKeepsNeitherItsArgumentsNorItsEnvironment: they may be megabytes, and
// many ended processes are remembered.
func TestAnEndedProcessKeepsNeitherItsArgumentsNorItsEnvironment(t *testing.T) {
	c, table, _ := serve(t)
	s, e := begin(t, t.Context(), c, shell("sleep 1000"))
	p, err := table.Find(selector(e.pid))
	if err != nil || p.Config().GetCmd() != "/bin/sh" {
		t.Fatalf("while it runs: %v, %v", p, err)
	}
	p.kill()
	finish(s, e)
	<-p.done
	if p.Config() != nil {
		t.Error("it still has them")
	}
	if again, err := table.Find(selector(e.pid)); again != p || err != nil {
		t.Errorf("it is not remembered: %v", err)
	}
	tag := strings.Repeat("x", maxTag+1)
	req := shell("true")
	req.Tag = &tag
	if _, _, err := table.Start(t.Context(), "root", req, time.Time{}, stock); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("with a tag of %d bytes: %v", len(tag), err)
	}
}
