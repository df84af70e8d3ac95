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

	mu    sync.Mutex // guards the rest
	begun bool
	err   error // of the last read
	left  bool  // the handler has returned
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
	u.begun = true
	u.mu.Unlock()
	n, err := u.ReadCloser.Read(b)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err = err
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

// failed is why it could not be read; nil where it could.
func (u *upload) failed() error {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == io.EOF {
		return nil
	}
	return u.err
}

// complete reports whether its end has been seen. Where not, nobody knows where in
// the connection the next request begins: net/http would take what follows a chunk
// that it cannot read for one.
func (u *upload) complete() bool {
	if u == nil {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err == io.EOF
}

// leave ends the reading, and reports whether it is complete.
func (u *upload) leave() (complete bool) {
	if u == nil {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.left = true
	return u.err == io.EOF
}
