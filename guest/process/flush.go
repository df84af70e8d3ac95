package process

import (
	"context"
	"net/http"
)

// Batched makes the last event of a stream, the end of the stream and the end of
// the response go out in one write: for a short command each one more costs a
// packet and two wake-ups.
func Batched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &batchedWriter{ResponseWriter: w}
		next.ServeHTTP(b, r.WithContext(context.WithValue(r.Context(), batchKey{}, b)))
	})
}

type batchKey struct{}

// batchedWriter is a ResponseWriter that flushes no more once it is held. Only
// the handler's goroutine uses it.
type batchedWriter struct {
	http.ResponseWriter
	held bool
}

func (b *batchedWriter) Flush() {
	if b.held {
		return
	}
	if f, ok := b.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is for http.ResponseController.
func (b *batchedWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// holdFlush says that the handler is about to return.
func holdFlush(ctx context.Context) {
	if b, ok := ctx.Value(batchKey{}).(*batchedWriter); ok {
		b.held = true
	}
}
