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
// zero, until it ends, stalls, or goes beyond its bounds.
func copyLayer(ctx context.Context, to, from *os.File, b layerBounds) error {
	s := &sparse{to: to, bounds: b}
	buf := make([]byte, 256<<10)
	for {
		from.SetReadDeadline(time.Now().Add(layerStall))
		if ctx.Err() != nil { // its end sets another deadline
			return context.Cause(ctx)
		}
		n, err := io.ReadFull(from, buf)
		if werr := s.write(buf[:n]); werr != nil {
			return werr
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return noSpace(to.Truncate(s.at))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("read the writable layer: %w", err)
		}
	}
}

// sparse writes a file with holes.
type sparse struct {
	to      *os.File
	bounds  layerBounds
	at      int64 // where the next byte belongs
	written int64 // bytes that are no holes
	room    int64 // bytes that can be written before it is looked for room again
}

const (
	blockSize = 4 << 10
	// roomStep is how much is written between two looks at what is free, in bytes.
	roomStep = 4 << 20
)

var zeros [blockSize]byte

// write writes what comes next. All but the last piece are whole blocks.
func (s *sparse) write(b []byte) error {
	if s.at+int64(len(b)) > s.bounds.length {
		return errors.New("the writable layer is longer than the disk is large; it has large holes")
	}
	for len(b) > 0 {
		if n := run(b, true); n > 0 {
			s.at += int64(n)
			b = b[n:]
			continue
		}
		n := run(b, false)
		if err := s.writeData(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// writeData writes what is not zero.
func (s *sparse) writeData(b []byte) error {
	n := int64(len(b))
	if s.written += n; s.written > s.bounds.data {
		return errors.New("the writable layer is larger than what it takes on disk allows")
	}
	if s.room < n {
		s.room = max(n, roomStep)
		if err := roomFor(s.to, s.room, s.bounds.spare); err != nil {
			return err
		}
	}
	s.room -= n
	if _, err := s.to.WriteAt(b, s.at); err != nil {
		return noSpace(err)
	}
	s.at += n
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
