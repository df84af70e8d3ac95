package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"
)

// modelled is an output beside the simplest thing that behaves like one: all bytes that
// were ever written, and where each reader is.
type modelled struct {
	t       *testing.T
	o       *output
	all     []byte
	streams []stream
	unread  int64
	ended   bool
	readers []*modelReader
}

type modelReader struct {
	r           *reader
	resumes     bool
	next, acked int64
	window      int64 // -1: none
	connected   bool
}

func (m *modelled) end() int64   { return int64(len(m.all)) }
func (m *modelled) start() int64 { return max(0, m.end()-m.o.max) }

// holds is the offset from which on a reader needs what there is.
func (a *modelReader) holds() int64 {
	if a.resumes && (!a.connected || a.window >= 0) {
		return a.acked
	}
	return a.next
}

// write writes, if that would wait for nobody.
func (m *modelled) write(s stream, n int) {
	if m.ended {
		return
	}
	n = max(1, min(n, int(m.o.max)))
	blocked := false
	for _, a := range m.readers {
		blocked = blocked || max(a.holds(), m.start()) < m.end()+int64(n)-m.o.max
	}
	if got := m.o.room() < int64(n); got != blocked {
		m.t.Fatalf("%d bytes at %d: the process would wait: %v, want %v", n, m.end(), got, blocked)
	}
	if blocked {
		return
	}
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(len(m.all) / 3)
		m.all = append(m.all, data[i])
		m.streams = append(m.streams, s)
	}
	m.o.write(s, data)
	clear(data) // it was copied
}

func (m *modelled) subscribe(how reading) {
	r, beyond := m.o.subscribe(how)
	a := &modelReader{r: r, resumes: how.resumes, connected: true, window: -1}
	if how.window > 0 {
		a.window = how.window
	}
	switch {
	case how.tail:
		a.next = m.start()
	case how.resumes:
		a.next = how.from
	default:
		a.next = m.unread
		for _, b := range m.readers {
			if b.connected {
				a.next = m.end()
			}
		}
	}
	a.acked = a.next
	if (beyond != nil) != (a.next > m.end()) {
		m.t.Fatalf("offset %d of %d: %+v", a.next, m.end(), beyond)
	}
	if beyond != nil {
		return
	}
	if how.resumes {
		m.takeOver(a)
	}
	m.readers = append(m.readers, a)
}

func (m *modelled) takeOver(by *modelReader) {
	at := -1
	for i, a := range m.readers {
		if !a.connected && a.acked <= by.acked && (at < 0 || a.acked > m.readers[at].acked) {
			at = i
		}
	}
	if at < 0 {
		return
	}
	// Several may have read as much: which of them it is makes no difference but to us.
	for i, a := range m.readers {
		if _, there := m.o.readers[a.r]; !there && a.acked == m.readers[at].acked {
			at = i
		}
	}
	m.readers = append(m.readers[:at], m.readers[at+1:]...)
}

func (m *modelled) unsubscribe(a *modelReader) {
	if !a.connected {
		return
	}
	m.o.unsubscribe(a.r, false)
	if a.connected = false; !a.resumes {
		for i := range m.readers {
			if m.readers[i] == a {
				m.readers = append(m.readers[:i], m.readers[i+1:]...)
				break
			}
		}
	}
}

// take takes once, and compares with what a reader ought to get.
func (m *modelled) take(a *modelReader) {
	if !a.connected {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // where there is nothing it does not wait
	p, err := m.o.take(ctx, a.r, nil)
	switch {
	case a.next < m.start():
		if err != nil || p.data != nil || p.dropped != m.start()-a.next {
			m.t.Fatalf("at %d of which all before %d is gone: %d bytes, %d dropped, %v", a.next, m.start(), len(p.data), p.dropped, err)
		}
		a.next = m.start()
	case a.next == m.end() && m.ended:
		if !errors.Is(err, io.EOF) {
			m.t.Fatalf("at the end: %d bytes, %v", len(p.data), err)
		}
	case a.window == 0:
		if !errors.Is(err, errWindow) {
			m.t.Fatalf("after the window: %d bytes, %v", len(p.data), err)
		}
	case a.next == m.end():
		if !errors.Is(err, context.Canceled) {
			m.t.Fatalf("with nothing to read: %d bytes, %v", len(p.data), err)
		}
	default:
		m.compare(a, p, err)
	}
	if err == nil {
		m.unread = max(m.unread, a.next)
	}
}

func (m *modelled) compare(a *modelReader, p piece, err error) {
	n := int64(len(p.data))
	if err != nil || n == 0 || p.dropped != 0 || p.offset != a.next || a.next+n > m.end() || a.window >= 0 && n > a.window {
		m.t.Fatalf("at %d with window %d: %d bytes at %d, %d dropped, %v", a.next, a.window, n, p.offset, p.dropped, err)
	}
	if !bytes.Equal(p.data, m.all[a.next:a.next+n]) {
		m.t.Fatalf("at %d: other bytes than were written", a.next)
	}
	for _, s := range m.streams[a.next : a.next+n] {
		if s != p.stream {
			m.t.Fatalf("at %d: of stream %d, want %d", a.next, p.stream, s)
		}
	}
	a.next += n
	if a.window >= 0 {
		a.window -= n
	}
}

// FuzzAnOutputIsWhatWasWritten: whatever is written, read, broken and taken up again in
// whatever order, each reader gets what was written, or is told how much it does not get.
func FuzzAnOutputIsWhatWasWritten(f *testing.F) {
	random := rand.New(rand.NewPCG(6, 6))
	for range 5 {
		ops := make([]byte, 3000)
		for i := range ops {
			ops[i] = byte(random.Uint32())
		}
		f.Add(ops)
	}
	f.Fuzz(func(t *testing.T, ops []byte) {
		ops = ops[:min(len(ops), 3000)]
		m := &modelled{t: t, o: newOutput(100_000, time.Hour)}
		for i := 0; i+2 < len(ops); i += 3 {
			m.step(ops[i], int(ops[i+1])<<8+int(ops[i+2]))
		}
		for len(m.readers) > 0 {
			a := m.readers[0]
			m.unsubscribe(a)
			m.readers = m.readers[min(1, len(m.readers)):]
		}
		m.o.patience.stop()
	})
}

// step does one thing, of which n says the size or the place.
func (m *modelled) step(op byte, n int) {
	var some *modelReader
	if len(m.readers) > 0 {
		some = m.readers[n%len(m.readers)]
	}
	switch op % 16 {
	case 0, 1, 2:
		m.write(stream(n%3), n)
	case 3, 4:
		for i := range 100 {
			m.write(stream(i%2), n%7)
		}
	case 5:
		m.subscribe(reading{})
	case 6:
		m.subscribe(reading{resumes: true, tail: true})
	case 7, 8:
		if len(m.readers) < maxAway { // more are given up
			m.subscribe(reading{resumes: true, from: m.end() - int64(n) + 1000, window: int64(op) * 300}.positive())
		}
	case 9:
		if some != nil {
			m.unsubscribe(some)
		}
	case 15:
		if n%50 == 0 {
			m.o.close()
			m.ended = true
		}
	default:
		for range 1 + n%40 {
			if some != nil {
				m.take(some)
			}
		}
	}
}

func (r reading) positive() reading {
	r.from = max(r.from, 0)
	return r
}
