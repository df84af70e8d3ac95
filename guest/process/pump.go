package process

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"cubesandbox/guest/envdpb/process"

	"golang.org/x/sys/unix"
)

// linger is how long the outputs of an ended process are still read to their
// end: a descendant may have its last words. What holds them open for longer was
// meant to go on; its output is then read and forgotten, so that it goes on.
const linger = 50 * time.Millisecond

// source is one output of a process.
type source struct {
	file   *os.File
	stream stream
}

// ends are the two sides of a process's standard descriptors.
type ends struct {
	theirs  [3]int
	toClose []int // of theirs
	outputs []source
	inputs  []*os.File
}

func (e *ends) closeTheirs() {
	for _, fd := range e.toClose {
		unix.Close(fd)
	}
}

func (e *ends) closeOurs() {
	for _, s := range e.outputs {
		s.file.Close()
	}
	for _, f := range e.inputs {
		f.Close()
	}
}

// open makes the descriptors of a process that is about to start.
func (t *Table) open(ctx context.Context, p *Process, user string, req *process.StartRequest) (*ends, error) {
	if req.Pty != nil {
		return t.openTerminal(ctx, p, user, req.Pty.GetSize())
	}
	e := &ends{}
	if req.Stdin == nil || *req.Stdin {
		theirs, ours, err := pipe(true)
		if err != nil {
			return nil, err
		}
		e.theirs[0], e.toClose, p.stdin = theirs, append(e.toClose, theirs), ours
		e.inputs = append(e.inputs, ours)
	} else {
		null, err := devNull()
		if err != nil {
			return nil, err
		}
		e.theirs[0] = null
	}
	for i, s := range []stream{stdout, stderr} {
		theirs, ours, err := pipe(false)
		if err != nil {
			e.closeTheirs()
			e.closeOurs()
			return nil, err
		}
		e.theirs[i+1], e.toClose = theirs, append(e.toClose, theirs)
		e.outputs = append(e.outputs, source{ours, s})
	}
	return e, nil
}

func (t *Table) openTerminal(ctx context.Context, p *Process, user string, size *process.PTY_Size) (*ends, error) {
	master, slave, err := t.terminals.OpenPTY(ctx, user)
	if err != nil {
		return nil, err
	}
	if size != nil {
		resize(master, size) // a wrong size does no harm
	}
	p.terminal = os.NewFile(uintptr(master), "terminal")
	return &ends{
		theirs: [3]int{slave, slave, slave}, toClose: []int{slave},
		outputs: []source{{p.terminal, terminal}},
	}, nil
}

// pipe makes a pipe of which our end does not block.
func pipe(input bool) (theirs int, ours *os.File, err error) {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, err
	}
	theirs, mine := fd[1], fd[0]
	if input {
		theirs, mine = fd[0], fd[1]
	}
	if err := unix.SetNonblock(mine, true); err != nil {
		unix.Close(fd[0])
		unix.Close(fd[1])
		return -1, nil, err
	}
	return theirs, os.NewFile(uintptr(mine), "pipe"), nil
}

var devNull = sync.OnceValues(func() (int, error) {
	return unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
})

// buffers are only held while there is something to read: an idle process costs none.
var buffers = sync.Pool{New: func() any { return new([blockSize]byte) }}

// pump gives an output to carry, and reads on until its end. It sends to drained once:
// when all that the process had written before the file's deadline has been carried.
// carry is not called after that.
func (s source) pump(carry func(stream, []byte), drained chan<- struct{}) {
	defer s.file.Close()
	raw, err := s.file.SyscallConn()
	if err != nil {
		drained <- struct{}{}
		return
	}
	told := false
	for {
		end := false
		err := raw.Read(func(fd uintptr) bool {
			n, err := s.read(fd, carry)
			end = n <= 0 && err != unix.EAGAIN && err != unix.EINTR
			return err != unix.EAGAIN
		})
		switch {
		case err == nil && !end:
			continue
		case errors.Is(err, os.ErrDeadlineExceeded) && !told:
			s.drain(raw, carry)
			carry = func(stream, []byte) {}
			told = true
			drained <- struct{}{}
			s.file.SetReadDeadline(time.Time{})
			continue
		}
		if !told {
			drained <- struct{}{}
		}
		return
	}
}

// read reads once, without waiting.
func (s source) read(fd uintptr, carry func(stream, []byte)) (int, error) {
	b := buffers.Get().(*[blockSize]byte)
	defer buffers.Put(b)
	limit := blockSize
	if s.stream == terminal {
		limit = eventPTY
	}
	n, err := unix.Read(int(fd), b[:limit])
	if n > 0 {
		carry(s.stream, b[:n])
	}
	return n, err
}

// drain carries what is there now, within reason: somebody may still be writing.
func (s source) drain(raw interface{ Control(func(uintptr)) error }, carry func(stream, []byte)) {
	raw.Control(func(fd uintptr) {
		for total := 0; total < maxOutput; {
			n, err := s.read(fd, carry)
			if n <= 0 && err != unix.EINTR {
				return
			}
			total += max(n, 0)
		}
	})
}
