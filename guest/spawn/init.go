package spawn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is the descriptor on which init finds its end of the socketpair.
const socket = 3

// RunInit is process 1 of the users' namespaces. It returns when the agent has
// closed its end, or with what could not be set up.
func RunInit() error {
	// Init only forks: one processor and a small heap do.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(25)
	unix.CloseOnExec(socket)
	unix.Umask(0o022)
	if err := enterNamespaces(); err != nil {
		return err
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	s := &server{live: make(map[int]bool), spawned: make(chan struct{}, 1), stop: make(chan struct{})}
	if err := s.send(kindReady, nil); err != nil {
		return err
	}
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		s.reap()
	}()
	err := s.serve()
	close(s.stop)
	if errors.Is(err, errClosed) {
		return nil // the namespace ends with this process, and the reaper with it
	}
	return err
}

var errClosed = errors.New("the agent closed its end")

type server struct {
	mu      sync.Mutex // guards live and writes; held over fork so that no exit overtakes its start
	live    map[int]bool
	spawned chan struct{} // holds one token when there may be children again
	stop    chan struct{}
}

func (s *server) send(kind byte, payload []byte) error {
	b := appendFrame(nil, kind, payload)
	for len(b) > 0 {
		n, err := unix.Write(socket, b)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("write to the agent: %w", err)
		}
		b = b[max(n, 0):]
	}
	return nil
}

func (s *server) serve() error {
	for {
		kind, payload, fds, err := receive()
		if err != nil {
			return err
		}
		switch kind {
		case kindSpawn:
			err = s.spawn(payload, fds)
		case kindSignal:
			s.signal(payload)
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
		if err != nil {
			return err
		}
	}
}

func (s *server) spawn(payload []byte, fds []int) error {
	q, err := decodeRequest(payload)
	if err == nil && len(fds) != 3 {
		err = errForm
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pid := 0
	if err == nil {
		pid, err = start(q, fds)
	}
	var answer []byte
	var failed *Error
	switch {
	case err == nil:
		s.live[pid] = true
		select {
		case s.spawned <- struct{}{}:
		default:
		}
	case !errors.As(err, &failed):
		failed = &Error{FailureOther, err.Error()}
	}
	answer = binary.LittleEndian.AppendUint32(answer, uint32(pid))
	if failed != nil {
		text := failed.Text
		if len(text) > maxAnswer/2 {
			text = text[:maxAnswer/2]
		}
		answer = append(append(answer, byte(failed.Failure)), text...)
	}
	return s.send(kindStarted, answer)
}

func (s *server) signal(payload []byte) {
	if len(payload) != 8 {
		return
	}
	pid, sig := int(binary.LittleEndian.Uint32(payload)), binary.LittleEndian.Uint32(payload[4:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[pid] {
		unix.Kill(pid, syscall.Signal(sig)) // an error means that it has just ended
	}
}

// reap waits for every process of the namespace that has no other parent, and
// reports those that the agent asked for.
func (s *server) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil: // no children
			select {
			case <-s.spawned:
			case <-s.stop:
				return
			}
		default:
			s.mu.Lock()
			if s.live[pid] {
				delete(s.live, pid)
				b := binary.LittleEndian.AppendUint32(nil, uint32(pid))
				s.send(kindExited, binary.LittleEndian.AppendUint32(b, uint32(status))) // a failure ends serve too
			}
			s.mu.Unlock()
		}
	}
}

// receive reads a frame and the descriptors that came with it.
func receive() (kind byte, payload []byte, fds []int, err error) {
	header := make([]byte, headerSize)
	oob := make([]byte, unix.CmsgSpace(3*4))
	var n, oobn int
	for {
		n, oobn, _, _, err = unix.Recvmsg(socket, header, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0, nil, nil, fmt.Errorf("read from the agent: %w", err)
	}
	if n == 0 {
		return 0, nil, nil, errClosed
	}
	if oobn > 0 {
		msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return 0, nil, nil, err
		}
		for _, m := range msgs {
			if got, err := unix.ParseUnixRights(&m); err == nil {
				fds = append(fds, got...)
			}
		}
	}
	var r socketReader
	if err := r.full(header[n:]); err != nil {
		return 0, nil, fds, err
	}
	kind, payload, err = readBody(r, header, maxRequest)
	return kind, payload, fds, err
}

// socketReader reads from the agent's socket without the poller, which init
// does not need: it waits for one thing only.
type socketReader struct{}

func (socketReader) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(socket, b)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, err
		case n == 0 && len(b) > 0:
			return 0, errClosed
		default:
			return n, nil
		}
	}
}

func (r socketReader) full(b []byte) error {
	for len(b) > 0 {
		n, err := r.Read(b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
