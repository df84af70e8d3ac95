package output

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"cubesandbox/client"
)

// reader is a client that resumes by offset. What it has read is in a file, and where that
// ends is all that it knows when it begins again.
type reader struct {
	g      *client.Guest
	pid    uint32
	file   *os.File
	random *rand.Rand

	mu      sync.Mutex // guards all below
	at      client.Position
	moved   chan struct{} // closed and replaced when at changes
	backs   []client.WentBackError
	begins  int
	written int64 // bytes put into the file, also those that were taken back
}

func newReader(t *testing.T, g *client.Guest, pid uint32, at client.Position, random *rand.Rand) *reader {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &reader{g: g, pid: pid, file: f, at: at, random: random, moved: make(chan struct{})}
}

// run reads to the program's end. From time to time it stops in the middle, as a client does
// that is killed, and begins again.
func (r *reader) run(ctx context.Context) (client.Exit, error) {
	for {
		r.mu.Lock()
		at := r.at
		r.begins++
		r.mu.Unlock()
		exit, err := r.some(ctx, at, 1+r.random.IntN(5000))
		var back *client.WentBackError
		switch {
		case errors.As(err, &back):
			if err := r.goBack(*back); err != nil {
				return client.Exit{}, err
			}
		case err != nil:
			return client.Exit{}, fmt.Errorf("at %d: %w", at.Offset, err)
		case exit != nil:
			return *exit, nil
		}
	}
}

// some reads so many pieces.
func (r *reader) some(ctx context.Context, at client.Position, n int) (*client.Exit, error) {
	for p, err := range r.g.Follow(ctx, r.pid, at, client.Following{}) {
		switch {
		case err != nil:
			return nil, err
		case p.Exit != nil:
			return p.Exit, nil
		case p.Dropped > 0:
			return nil, fmt.Errorf("%d bytes are gone at %d", p.Dropped, at.Offset)
		case p.Stream != client.Stdout || p.Next.Offset != at.Offset+int64(len(p.Data)):
			return nil, fmt.Errorf("after %d: %d bytes of stream %d, and then %d", at.Offset, len(p.Data), p.Stream, p.Next.Offset)
		}
		if _, err := r.file.WriteAt(p.Data, at.Offset); err != nil {
			return nil, err
		}
		at = p.Next
		r.move(at, int64(len(p.Data)))
		if n--; n == 0 {
			return nil, nil
		}
	}
	return nil, errors.New("the output ended without an end")
}

func (r *reader) move(to client.Position, written int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = to
	r.written += written
	close(r.moved)
	r.moved = make(chan struct{})
}

// goBack forgets what no longer has been.
func (r *reader) goBack(e client.WentBackError) error {
	r.mu.Lock()
	r.backs = append(r.backs, e)
	r.mu.Unlock()
	r.move(e.To, 0)
	return r.file.Truncate(e.To.Offset)
}

// offset is how far it has read.
func (r *reader) offset() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at.Offset
}

// wait returns when it is where it is to be.
func (r *reader) wait(ctx context.Context, there func(client.Position) bool) error {
	for {
		r.mu.Lock()
		at, moved := r.at, r.moved
		r.mu.Unlock()
		if there(at) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("it is at %+v: %w", at, context.Cause(ctx))
		}
	}
}

// digest is that of all that it has read, each line of which must have its number.
func (r *reader) digest() (string, int64, error) {
	if _, err := r.file.Seek(0, io.SeekStart); err != nil {
		return "", 0, err
	}
	sum := sha256.New()
	in := bufio.NewScanner(io.TeeReader(r.file, sum))
	var size int64
	for n := 0; in.Scan(); n++ {
		var number int
		if _, err := fmt.Sscan(in.Text(), &number); err != nil || number != n {
			return "", size, fmt.Errorf("line %d is %.80q", n, in.Text())
		}
		size += int64(len(in.Bytes())) + 1
	}
	return hex.EncodeToString(sum.Sum(nil)), size, in.Err()
}
