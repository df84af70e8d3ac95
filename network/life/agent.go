package life

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// maxAnswer bounds, in bytes, what the agent may say before the bytes of the
// connection begin.
const maxAnswer = 4 << 10

var headEnd = []byte("\r\n\r\n")

// upgrade asks the agent at the other end of f to make it a connection to port.
// Every byte of the answer is hostile: what is behind its head stays in f.
func (f *flow) upgrade(ctx context.Context, port uint16) error {
	request := fmt.Appendf(nil, "POST /v1/dial?port=%d HTTP/1.1\r\nHost: agent\r\n"+
		"Connection: Upgrade\r\nUpgrade: cube-dial\r\nContent-Length: 0\r\n\r\n", port)
	if n, err := f.ep.Write(bytes.NewReader(request), tcpip.WriteOptions{}); err != nil || int(n) != len(request) {
		return fmt.Errorf("guest agent: %w: it does not take a request", ErrAgent)
	}
	head, err := f.head(ctx)
	if err != nil {
		return err
	}
	return status(head)
}

// status judges the head of an answer.
func status(head []byte) error {
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	switch {
	case isStatus(line, "101"):
		return nil
	case isStatus(line, "502"):
		return ErrRefused
	}
	return fmt.Errorf("guest agent: %w: %.64q", ErrAgent, line)
}

func isStatus(line []byte, code string) bool {
	rest, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 "+code))
	return ok && (len(rest) == 0 || rest[0] == ' ')
}

// head reads up to the first empty line and no further.
func (f *flow) head(ctx context.Context) ([]byte, error) {
	entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp)
	f.wq.EventRegister(&entry)
	defer f.wq.EventUnregister(&entry)
	for {
		seen := prefix{max: maxAnswer}
		_, err := f.ep.Read(&seen, tcpip.ReadOptions{Peek: true})
		if i := bytes.Index(seen.b, headEnd); i >= 0 {
			seen = prefix{max: i + len(headEnd)}
			f.ep.Read(&seen, tcpip.ReadOptions{})
			return seen.b, nil
		}
		if len(seen.b) == maxAnswer {
			return nil, fmt.Errorf("guest agent: %w: head of more than %d bytes", ErrAgent, maxAnswer)
		}
		if _, wait := err.(*tcpip.ErrWouldBlock); err != nil && !wait || f.ended() {
			return nil, fmt.Errorf("guest agent: %w: it hung up", ErrAgent)
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, fmt.Errorf("guest agent: %w", cause(ctx))
		}
	}
}

// ended reports whether the guest has ended its stream.
func (f *flow) ended() bool {
	return f.ep.Readiness(waiter.ReadableEvents|waiter.EventRdHUp)&waiter.EventRdHUp != 0
}

// prefix takes the first max bytes that are written to it.
type prefix struct {
	b   []byte
	max int
}

func (p *prefix) Write(b []byte) (int, error) {
	n := min(len(b), p.max-len(p.b))
	p.b = append(p.b, b[:n]...)
	if n < len(b) {
		return n, io.ErrShortWrite
	}
	return n, nil
}
