package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// goodbyeTime is how long a client has for what it answers when it is told that the
// server stops.
const goodbyeTime = 500 * time.Millisecond

// upgraded is a client's connection after an upgrade.
type upgraded struct {
	net.Conn
	rec    *recorder
	early  []byte // what was read before the upgrade
	socket bool   // it is a WebSocket
	// switched is closed when it is in use: the answer to the upgrade has been written.
	switched chan struct{}
	use      func()

	mu      sync.Mutex // held while something is written; guards the rest
	frames  frames
	leaving bool // goodbye is to be said between two frames
	said    bool
}

func newUpgraded(c net.Conn, r *recorder, early []byte) *upgraded {
	u := &upgraded{Conn: c, rec: r, early: early, socket: isWebSocket(r.request.Header), switched: make(chan struct{})}
	u.use = sync.OnceFunc(func() { close(u.switched) })
	return u
}

func (u *upgraded) Read(b []byte) (int, error) {
	u.use()
	if len(u.early) > 0 {
		n := copy(b, u.early)
		u.early = u.early[n:]
		return n, nil
	}
	n, err := u.Conn.Read(b)
	if err != nil && u.hasSaid() {
		err = errRestart // nothing is to be waited for
	}
	return n, err
}

func (u *upgraded) Write(b []byte) (int, error) {
	u.use()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.said {
		return len(b), nil // a client that has been told to go reads no more
	}
	if !u.socket {
		return u.Conn.Write(b)
	}
	now, whole := b, u.frames.scan(b)
	if u.leaving && whole > 0 {
		now = b[:whole]
		u.frames = frames{last: u.frames.last && whole == len(b)}
	}
	if n, err := u.Conn.Write(now); err != nil {
		return n, err
	}
	u.say()
	return len(b), nil
}

// leave ends the connection because the server stops: a WebSocket with a close frame,
// which its client may answer, and what nobody knows with a reset.
func (u *upgraded) leave() {
	if u.socket {
		pause(u.rec.request.Context(), u.switched, goodbyeTime)
		u.SetWriteDeadline(time.Now().Add(goodbyeTime)) // whoever writes has the lock
		u.mu.Lock()
		u.leaving = true
		u.say()
		u.mu.Unlock()
		pause(u.rec.request.Context(), nil, goodbyeTime)
	}
	u.rec.cancel(errRestart)
	u.SetDeadline(time.Unix(1, 0))
}

// say says goodbye if it is to be said and can be.
func (u *upgraded) say() {
	if !u.leaving || u.said || !u.frames.between() {
		return
	}
	if _, err := u.Conn.Write(closeFrame); err == nil {
		u.said = true
		u.CloseWrite()
	}
}

func (u *upgraded) hasSaid() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.said
}

// Close resets the connection when the guest's was, or when we cut it.
func (u *upgraded) Close() error {
	cut := u.rec.proxy.ctx.Err() != nil || errors.Is(context.Cause(u.rec.request.Context()), errRestart)
	if u.rec.end.conn != nil && (u.rec.end.broken() || cut && !u.hasSaid()) {
		u.rec.reset = true
		u.rec.end.conn.reset()
		return nil
	}
	return u.Conn.Close()
}

// CloseWrite ends our side alone, unless the guest's was reset.
func (u *upgraded) CloseWrite() error {
	if u.rec.end.broken() {
		return nil
	}
	if t, ok := u.Conn.(*tls.Conn); ok {
		return t.CloseWrite()
	}
	if u.rec.end.conn != nil {
		return u.rec.end.conn.CloseWrite()
	}
	return nil
}
