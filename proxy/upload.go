package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// upload is a request's body on its way to the guest. It is read by whoever writes
// to the guest, which may be in the middle of that when the answer is complete.
type upload struct {
	io.ReadCloser

	mu               sync.Mutex // guards the rest
	begun, busy, end bool
	left             bool // the handler has returned
}

// uploadOf puts one around the body of a request; nil where it has none.
func uploadOf(r *http.Request) *upload {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	u := &upload{ReadCloser: r.Body}
	r.Body = u
	return u
}

var errLeft = errors.New("the request has been answered")

func (u *upload) Read(b []byte) (int, error) {
	u.mu.Lock()
	if u.left {
		u.mu.Unlock()
		return 0, errLeft
	}
	u.begun, u.busy = true, true
	u.mu.Unlock()
	n, err := u.ReadCloser.Read(b)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy, u.end = false, u.end || err != nil
	return n, err
}

// fresh reports whether nothing of it has been read, so that it can still go
// somewhere else.
func (u *upload) fresh() bool {
	if u == nil {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.begun
}

// leave ends the reading, and reports whether it was in the middle: then nobody
// knows where in the connection the body ends and the next request begins.
func (u *upload) leave() (middle bool) {
	if u == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.left = true
	return u.busy && !u.end
}
