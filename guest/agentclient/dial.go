package agentclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
)

// DialLocal connects to a server on the sandbox's own loopback, through the
// agent; its error is cube.ErrRefused when there is none. The connection carries half-closes if the Dialer's do.
func DialLocal(ctx context.Context, dial Dialer, port uint16) (net.Conn, error) {
	c, err := dial(ctx, agentapi.ControlPort)
	if err != nil {
		return nil, fmt.Errorf("dial the guest agent: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	up, err := upgrade(c, port)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, brief(fmt.Errorf("dial port %d in the sandbox: %w", port, err))
	}
	return up, nil
}

func upgrade(c net.Conn, port uint16) (net.Conn, error) {
	_, err := fmt.Fprintf(c, "POST /v1/dial?port=%d HTTP/1.1\r\nHost: guest\r\nConnection: Upgrade\r\nUpgrade: cube-dial\r\nContent-Length: 0\r\n\r\n", port)
	if err != nil {
		return nil, err
	}
	// Limited until here: what follows the headers is the stream.
	br := bufio.NewReaderSize(&io.LimitedReader{R: c, N: maxAnswer}, 4096)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cube.ErrAgent, err)
	}
	switch {
	case res.StatusCode == http.StatusBadGateway:
		return nil, cube.ErrRefused
	case res.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(res.Header.Get("Upgrade"), "cube-dial"):
		return nil, fmt.Errorf("%w: %s", cube.ErrAgent, firstLine([]byte(res.Status)))
	}
	ahead, _ := br.Peek(br.Buffered())
	return withAhead(c, append([]byte(nil), ahead...)), nil
}

// withAhead returns c, with bytes that were read from it too early in front.
func withAhead(c net.Conn, ahead []byte) net.Conn {
	if len(ahead) == 0 {
		return c
	}
	return &aheadConn{c, ahead}
}

type aheadConn struct {
	net.Conn
	ahead []byte // only Read uses it
}

func (c *aheadConn) Read(b []byte) (int, error) {
	if len(c.ahead) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

// CloseWrite ends our side of the stream.
func (c *aheadConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
