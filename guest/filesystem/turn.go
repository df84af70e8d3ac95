package filesystem

import (
	"os"
	"sync"
	"syscall"
)

// turns has uploads to the same file follow each other, where they come at once:
// the file holds what the last one to begin has sent, and nothing of another. The
// others go on as if they had ended just before; nobody waits for anybody.
type turns struct {
	mu   sync.Mutex       // guards all below
	last map[fileID]*turn // the upload that began last, of each file under way
}

// fileID is a file, whatever its names.
type fileID struct{ dev, ino uint64 }

// turn is one upload to a file.
type turn struct {
	of *turns
	id fileID

	mu   sync.Mutex // held while the file is changed
	over bool       // another one began
}

// begin is the end of all other turns at an open file.
func (ts *turns) begin(info os.FileInfo) *turn {
	t := &turn{of: ts}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		t.id = fileID{uint64(st.Dev), st.Ino}
	}
	ts.mu.Lock()
	before := ts.last[t.id]
	if ts.last == nil {
		ts.last = make(map[fileID]*turn)
	}
	ts.last[t.id] = t
	ts.mu.Unlock()
	if before != nil {
		before.mu.Lock()
		before.over = true
		before.mu.Unlock()
	}
	return t
}

// end is the end of a turn.
func (t *turn) end() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.of.last[t.id] == t {
		delete(t.of.last, t.id)
	}
}

// change runs f, which changes the file, unless the turn is over.
func (t *turn) change(f func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil
	}
	return f()
}

// turnWriter writes to a file for as long as it has the turn; what comes after that
// is as good as written.
type turnWriter struct {
	file *os.File
	turn *turn
}

func (w turnWriter) Write(b []byte) (n int, err error) {
	n = len(b)
	err = w.turn.change(func() error {
		n, err = w.file.Write(b)
		return err
	})
	return n, err
}
