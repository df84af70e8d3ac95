package life

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
)

// pair returns our end and, as a connection, the client's.
func pair(t *testing.T) (*local, *net.UnixConn) {
	t.Helper()
	ours, f, err := newLocal()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.close(); c.Close() })
	return ours, c.(*net.UnixConn)
}

// readAll reads what the client sends until it ends its stream.
func readAll(t *testing.T, l *local) []byte {
	t.Helper()
	var got []byte
	for {
		more, err := l.read(func(b []byte) error { got = append(got, b...); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return got
		}
	}
}

func TestEveryByteIsReadOnceAndInOrder(t *testing.T) {
	for _, sizes := range [][]int{{}, {1}, {1, 1, 1}, {glance - 1}, {glance}, {glance + 1}, {bufferSize}, {bufferSize + 1}, {3 * bufferSize}, {1, glance, 2, bufferSize, 3}} {
		l, c := pair(t)
		var want []byte
		var wg sync.WaitGroup
		for _, n := range sizes {
			b := make([]byte, n)
			rand.Read(b)
			want = append(want, b...)
		}
		wg.Go(func() {
			at := 0
			for _, n := range sizes {
				c.Write(want[at : at+n])
				at += n
			}
			c.CloseWrite()
		})
		if got := readAll(t, l); !bytes.Equal(got, want) {
			t.Errorf("%v: got %d bytes, want %d, or others", sizes, len(got), len(want))
		}
		wg.Wait()
	}
}

func TestCloseIsAResetUnlessSettled(t *testing.T) {
	for _, spoke := range []bool{false, true} {
		for _, settled := range []bool{false, true} {
			l, c := pair(t)
			if spoke {
				io.WriteString(c, "x")
				l.read(func([]byte) error { return nil })
			}
			want := error(syscall.ECONNRESET)
			if settled {
				l.settle()
				want = io.EOF
			}
			l.close()
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, want) {
				t.Errorf("spoke %v, settled %v: got %v, want %v", spoke, settled, err, want)
			}
		}
	}
}

func TestBytesBeforeAResetAreNotLost(t *testing.T) {
	l, c := pair(t)
	l.file.Write([]byte("last words"))
	l.close()
	b := make([]byte, 20)
	if n, err := c.Read(b); string(b[:n]) != "last words" || err != nil {
		t.Errorf("got %q, %v", b[:n], err)
	}
	if _, err := c.Read(b); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("then: got %v, want ECONNRESET", err)
	}
}

func TestDescriptorsThatAClientSendsAreDropped(t *testing.T) {
	l, c := pair(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 10 {
			io.WriteString(c, "a")
			c.WriteMsgUnix([]byte("bc"), syscall.UnixRights(0, 1), nil)
		}
		c.CloseWrite()
	})
	got := readAll(t, l)
	wg.Wait()
	if string(got) != "abcabcabcabcabcabcabcabcabcabc" {
		t.Errorf("got %q", got)
	}
}

func TestHangupIsToldFromAnEndOfStream(t *testing.T) {
	l, c := pair(t)
	c.CloseWrite()
	readAll(t, l)
	done := make(chan bool)
	go func() { done <- l.waitHangup() }()
	select {
	case <-done:
		t.Fatal("the client still listens")
	default:
	}
	c.Close()
	if !<-done {
		t.Error("got no hangup")
	}
}
