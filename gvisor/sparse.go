package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
)

// copyLayer copies a stream to a file from its start, with holes where whole blocks are
// zero, until it ends, stalls, or has more than most bytes that are not zero.
func copyLayer(ctx context.Context, to, from *os.File, most int64) error {
	s := &sparse{to: to, left: most}
	buf := make([]byte, 256<<10)
	for {
		from.SetReadDeadline(time.Now().Add(layerStall))
		if ctx.Err() != nil { // its end sets another deadline
			return ctx.Err()
		}
		n, err := io.ReadFull(from, buf)
		if werr := s.write(buf[:n]); werr != nil {
			return werr
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return noSpace(to.Truncate(s.at))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("read the writable layer: %w", err)
		}
	}
}

// sparse writes a file with holes.
type sparse struct {
	to   *os.File
	at   int64 // where the next byte belongs
	left int64 // how many bytes may still be written
}

const blockSize = 4 << 10

var zeros [blockSize]byte

// write writes what comes next. All but the last piece are whole blocks.
func (s *sparse) write(b []byte) error {
	for len(b) > 0 {
		if n := run(b, true); n > 0 {
			s.at += int64(n)
			b = b[n:]
			continue
		}
		n := run(b, false)
		if s.left -= int64(n); s.left < 0 {
			return errors.New("the writable layer is larger than what it takes on disk allows")
		}
		if _, err := s.to.WriteAt(b[:n], s.at); err != nil {
			return noSpace(err)
		}
		s.at += int64(n)
		b = b[n:]
	}
	return nil
}

// run is how many bytes at the beginning of b are blocks that are zero, or are not.
func run(b []byte, zero bool) (n int) {
	for n < len(b) {
		block := b[n:min(n+blockSize, len(b))]
		if bytes.Equal(block, zeros[:len(block)]) != zero {
			break
		}
		n += len(block)
	}
	return n
}

// noSpace tells a full disk from everything else.
func noSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", cube.ErrNoSpace, err)
	}
	return err
}
