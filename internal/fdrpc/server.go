package fdrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Request is what a handler gets.
type Request struct {
	body json.RawMessage
	// Files came with the request. They are closed when the handler returns; a
	// handler that keeps one sets its place to nil.
	Files []*os.File
	// Peer is who sent it.
	Peer Peer
}

// Peer is the process at the other end, as the kernel knew it when it connected.
type Peer struct {
	PID      int
	UID, GID uint32
}

// Decode reads the body into v.
func (r *Request) Decode(v any) error {
	if err := json.Unmarshal(r.body, v); err != nil {
		return Errorf("invalid", "request body: %v", err)
	}
	return nil
}

// Handler answers a request: a body, and files that are closed after sending.
// An *Error goes to the client as it is, any other error as code "internal".
// ctx ends when the client goes.
type Handler func(ctx context.Context, r *Request) (any, []*os.File, error)

// Server answers one protocol on any number of connections.
type Server struct {
	Protocol string
	Version  int
	// Allow decides whether a peer may connect; nil lets root and the server's own
	// uid in.
	Allow    func(Peer) bool
	handlers map[string]Handler

	mu      sync.Mutex // guards the following
	conns   map[*serverConn]struct{}
	done    bool
	running int           // requests that are being answered
	refusal *Error        // what new requests get, after Refuse
	idle    chan struct{} // made by Refuse, closed when nothing runs

	wg sync.WaitGroup // one for each connection
}

type serverConn struct {
	c    *net.UnixConn
	turn chan struct{} // holds a token while a message is sent: one at a time
}

// How long a client may take to make room for a message before it loses the
// connection. Nothing waits for an answer but its handler.
const (
	noteTime   = time.Second
	answerTime = 10 * time.Second
)

// NewServer makes a server without methods.
func NewServer(protocol string, version int) *Server {
	return &Server{Protocol: protocol, Version: version, handlers: map[string]Handler{}, conns: map[*serverConn]struct{}{}}
}

// Handle adds a method. All are added before Serve.
func (s *Server) Handle(method string, h Handler) { s.handlers[method] = h }

// Listen makes a socket at path, which it replaces, with the given mode.
func Listen(path string, mode os.FileMode) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, mode); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Serve accepts connections until the listener is closed.
func (s *Server) Serve(l *net.UnixListener) error {
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ECONNABORTED) {
			unix.Poll(nil, 20) // it passes when somebody closes something
			continue
		}
		if err != nil {
			return err
		}
		s.start(c)
	}
}

func (s *Server) start(c *net.UnixConn) {
	sc := &serverConn{c: c, turn: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		c.Close()
		return
	}
	s.conns[sc] = struct{}{}
	s.wg.Go(func() {
		s.serve(sc)
		c.Close()
		s.mu.Lock()
		delete(s.conns, sc)
		s.mu.Unlock()
	})
}

// Refuse answers every request from now on with e. Those that run go on.
func (s *Server) Refuse(e *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal != nil {
		return
	}
	s.refusal, s.idle = e, make(chan struct{})
	if s.running == 0 {
		close(s.idle)
	}
}

// Idle waits, after Refuse, until the last request that was let in is answered.
func (s *Server) Idle(ctx context.Context) error {
	s.mu.Lock()
	idle, n := s.idle, s.running
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d requests are still being carried out: %w", n, ctx.Err())
	}
}

// begin lets a request in, or says why not.
func (s *Server) begin() *Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal != nil {
		return s.refusal
	}
	s.running++
	return nil
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running--; s.running == 0 && s.idle != nil {
		close(s.idle)
	}
}

// Close reads no further requests, ends the contexts of those that run, waits for
// their answers to be sent and ends all connections. The listener is the caller's.
func (s *Server) Close() {
	s.mu.Lock()
	s.done = true
	for sc := range s.conns {
		sc.c.SetReadDeadline(time.Unix(1, 0))
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Notify pushes a note to all clients. A client that does not read loses the
// connection, not the server its time: it returns within about a second.
func (s *Server) Notify(method string, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("fdrpc: note %s: %v", method, err))
	}
	s.mu.Lock()
	conns := make([]*serverConn, 0, len(s.conns))
	for sc := range s.conns {
		conns = append(conns, sc)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, sc := range conns {
		wg.Go(func() {
			if err := sc.send(message{Method: method, Body: b}, nil, noteTime); err != nil {
				sc.c.Close()
			}
		})
	}
	wg.Wait()
}

// send waits for its turn and for room together no longer than limit.
func (sc *serverConn) send(m message, files []*os.File, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case sc.turn <- struct{}{}:
	case <-t.C:
		return os.ErrDeadlineExceeded
	}
	defer func() { <-sc.turn }()
	sc.c.SetWriteDeadline(deadline)
	return send(sc.c, m, files)
}

func (s *Server) serve(sc *serverConn) {
	tune(sc.c)
	peer, err := peerOf(sc.c)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	buf := make([]byte, maxPacket)
	if !s.allowed(peer) {
		// Closing with the hello unread would reset the connection, and the client
		// would not get the answer.
		if m, files, err := receive(sc.c, buf); err == nil {
			closeFiles(files)
			sc.send(message{ID: m.ID, Err: Errorf("denied", "uid %d may not use %s", peer.UID, s.Protocol)}, nil, answerTime)
		}
		return
	}
	for greeted := false; ; {
		m, files, err := receive(sc.c, buf)
		if err != nil {
			return
		}
		if !greeted {
			closeFiles(files)
			herr := s.hello(m)
			sc.send(message{ID: m.ID, Err: herr}, nil, answerTime)
			if herr != nil {
				return
			}
			greeted = true
			continue
		}
		wg.Go(func() { s.answer(ctx, sc, m, files, peer) })
	}
}

func (s *Server) allowed(p Peer) bool {
	if s.Allow != nil {
		return s.Allow(p)
	}
	return p.UID == 0 || p.UID == uint32(os.Geteuid())
}

func (s *Server) hello(m message) *Error {
	var h hello
	if m.Method != "hello" || json.Unmarshal(m.Body, &h) != nil {
		return Errorf("invalid", "the first message must be hello")
	}
	if h.Protocol != s.Protocol || h.Version != s.Version {
		return Errorf("version", "this is %s version %d; the client speaks %s version %d", s.Protocol, s.Version, h.Protocol, h.Version)
	}
	return nil
}

func (s *Server) answer(ctx context.Context, sc *serverConn, m message, files []*os.File, peer Peer) {
	r := &Request{body: m.Body, Files: files, Peer: peer}
	defer func() { closeFiles(r.Files) }()
	out := message{ID: m.ID}
	var reply []*os.File
	h, ok := s.handlers[m.Method]
	if refusal := s.begin(); refusal != nil {
		out.Err = refusal
	} else {
		defer s.end()
	}
	if out.Err != nil {
		// It is not carried out.
	} else if !ok {
		out.Err = Errorf("unknown-method", "%s has no method %q", s.Protocol, m.Method)
	} else {
		body, fs, err := h(ctx, r)
		reply = fs
		out.Err = asError(err)
		if err == nil && body != nil {
			b, err := json.Marshal(body)
			out.Body, out.Err = b, asError(err)
		}
	}
	err := sc.send(out, reply, answerTime)
	if Code(err) != "" {
		// It was not sent, being too large, and the client must hear of it.
		err = sc.send(message{ID: m.ID, Err: Errorf("internal", "%v", err)}, nil, answerTime)
	}
	if err != nil {
		sc.c.Close() // a client that waits for ever for this answer would not know
	}
	closeFiles(reply)
}

func asError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return &Error{Code: e.Code, Message: err.Error(), Detail: e.Detail}
	}
	return &Error{Code: "internal", Message: err.Error()}
}

func peerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var p Peer
	var cerr error
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			cerr = err
			return
		}
		p = Peer{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid}
	})
	return p, errors.Join(err, cerr)
}
