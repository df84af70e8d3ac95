package life

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// linger is how long a connection that the client has closed may take to end at
// the guest's side before it is reset.
const linger = 10 * time.Second

// conn splices a guest's TCP connection to a client's socket.
type conn struct {
	ep    tcpip.Endpoint
	wq    *waiter.Queue
	local *local

	in, out           waiter.Entry
	readable, written chan struct{}

	done    signal      // both directions are to be given up
	reset   signal      // and the end is a reset
	eof     atomic.Bool // the client has ended its stream
	drained atomic.Bool // the guest has ended its stream and the client has it all
}

func newConn(f *flow) (*conn, *os.File, error) {
	l, client, err := newLocal()
	if err != nil {
		return nil, nil, err
	}
	c := &conn{ep: f.ep, wq: f.wq, local: l, done: newSignal(), reset: newSignal()}
	c.in, c.readable = waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp)
	c.out, c.written = waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	c.wq.EventRegister(&c.in)
	c.wq.EventRegister(&c.out)
	return c, client, nil
}

// abort makes run end soon, with a reset on both sides.
func (c *conn) abort() {
	c.reset.give()
	c.stop()
}

func (c *conn) stop() {
	c.done.give()
	c.local.wake()
}

// run carries bytes until both streams have ended.
func (c *conn) run() {
	var up sync.WaitGroup
	up.Go(c.toGuest)
	c.toClient()
	up.Wait()
	if c.reset.given() {
		c.ep.Abort()
		c.local.close()
	} else {
		c.local.settle()
		c.local.close()
		c.leave()
	}
	c.wq.EventUnregister(&c.in)
	c.wq.EventUnregister(&c.out)
}

// leave closes the guest's side and waits until nothing more is owed to it, so
// that what has not been delivered yet counts as a connection.
func (c *conn) leave() {
	entry, ended := waiter.NewChannelEntry(waiter.EventHUp)
	c.wq.EventRegister(&entry)
	defer c.wq.EventUnregister(&entry)
	c.ep.Close()
	if c.ep.Readiness(waiter.EventHUp) != 0 {
		return
	}
	patience := time.NewTimer(linger)
	defer patience.Stop()
	select {
	case <-ended:
	case <-c.reset.c:
		c.ep.Abort()
	case <-patience.C:
		c.ep.Abort()
	}
}

// toGuest carries what the client sends.
func (c *conn) toGuest() {
	for {
		more, err := c.local.read(c.write)
		if err != nil {
			if !c.done.given() {
				c.abort()
			}
			return
		}
		if !more {
			break
		}
	}
	c.ep.Shutdown(tcpip.ShutdownWrite)
	c.eof.Store(true)
	// The guest may still have much to say, or nothing for ever: what tells a
	// client that listens from one that has gone is that the socket hangs up.
	if !c.drained.Load() && c.local.waitHangup() {
		c.stop()
	}
}

// write gives all of b to the guest's connection.
func (c *conn) write(b []byte) error {
	for r := bytes.NewReader(b); r.Len() > 0; {
		_, err := c.ep.Write(r, tcpip.WriteOptions{})
		switch err.(type) {
		case nil:
			continue
		case *tcpip.ErrWouldBlock:
		default:
			return unix.EPIPE
		}
		select {
		case <-c.written:
		case <-c.done.c:
			return os.ErrClosed
		}
	}
	return nil
}

// toClient carries what the guest sends.
func (c *conn) toClient() {
	for {
		err, errno := c.readInto()
		if errno != 0 {
			// The client has gone without having read everything, or was told to.
			if !c.done.given() {
				c.abort()
			}
			return
		}
		switch err.(type) {
		case nil:
			continue
		case *tcpip.ErrWouldBlock:
		case *tcpip.ErrClosedForReceive:
			c.local.endWrite()
			c.drained.Store(true)
			if c.eof.Load() {
				c.local.wakeReader()
			}
			return
		default:
			c.abort()
			return
		}
		select {
		case <-c.readable:
		case <-c.done.c:
			return
		}
	}
}

// readInto moves what the stack has received into the client's socket, and waits
// as long as that is full.
func (c *conn) readInto() (terr tcpip.Error, errno syscall.Errno) {
	err := c.local.conn.Write(func(fd uintptr) bool {
		w := fdWriter{fd: int(fd)}
		_, terr = c.ep.Read(&w, tcpip.ReadOptions{})
		errno = w.errno
		return errno != unix.EAGAIN
	})
	if err != nil {
		return nil, unix.EPIPE
	}
	return terr, errno
}

// fdWriter writes without waiting and keeps the error, which Read loses.
type fdWriter struct {
	fd    int
	errno syscall.Errno
}

func (w *fdWriter) Write(b []byte) (int, error) {
	for done := 0; ; {
		n, err := unix.Write(w.fd, b[done:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			w.errno = err.(syscall.Errno)
			return done, err
		}
		if done += n; done == len(b) {
			return done, nil
		}
	}
}
