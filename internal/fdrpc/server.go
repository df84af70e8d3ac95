package fdrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

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

	mu    sync.Mutex // guards conns and closed
	conns map[*serverConn]struct{}
	done  bool
	wg    sync.WaitGroup
}

type serverConn struct {
	c  *net.UnixConn
	mu sync.Mutex // one message at a time
}

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
		if err != nil {
			return err
		}
		s.start(c)
	}
}

func (s *Server) start(c *net.UnixConn) {
	sc := &serverConn{c: c}
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

// Close ends all connections and waits for their handlers. The listener is the caller's.
func (s *Server) Close() {
	s.mu.Lock()
	s.done = true
	for sc := range s.conns {
		sc.c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Notify pushes a note to all clients. A client that does not read loses the
// connection, not the server its time.
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
	for _, sc := range conns {
		if err := sc.send(message{Method: method, Body: b}, nil); err != nil {
			sc.c.Close()
		}
	}
}

func (sc *serverConn) send(m message, files []*os.File) error {
	sc.mu.Lock()
	defer sc.mu.Unlock()
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
			sc.send(message{ID: m.ID, Err: Errorf("denied", "uid %d may not use %s", peer.UID, s.Protocol)}, nil)
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
			sc.send(message{ID: m.ID, Err: herr}, nil)
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
	if !ok {
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
	if err := sc.send(out, reply); err != nil {
		// Too large, or the client has gone; in the first case it must hear of it.
		sc.send(message{ID: m.ID, Err: Errorf("internal", "%v", err)}, nil)
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
