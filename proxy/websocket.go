package proxy

import (
	"encoding/binary"
	"net/http"
	"strings"
)

// serviceRestart is the close code of a WebSocket whose server stops (RFC 6455 11.7).
const serviceRestart = 1012

// closeFrame says it to the client: final, opcode 8, not masked.
var closeFrame = append([]byte{0x88, 2 + byte(len(restarting))}, append(binary.BigEndian.AppendUint16(nil, serviceRestart), restarting...)...)

// isWebSocket reports whether a connection is to become a WebSocket.
func isWebSocket(h http.Header) bool { return strings.EqualFold(h.Get("Upgrade"), "websocket") }

// frames follows what a server of WebSockets says, to know where its frames end.
type frames struct {
	head []byte // of a frame that is not complete; nil between frames
	left uint64 // bytes of its payload that have not been seen
	last bool   // a close frame has been seen, or begun
}

// opClose is the operation of a frame that ends a WebSocket.
const opClose = 8

// between reports whether a frame of ours can be put behind what was seen.
func (f *frames) between() bool { return len(f.head) == 0 && f.left == 0 && !f.last }

// scan looks at the next bytes, and returns how many of them are up to the last end of
// a frame; 0: there is none.
func (f *frames) scan(b []byte) (whole int) {
	for i := 0; i < len(b); {
		if f.left > 0 {
			n := min(f.left, uint64(len(b)-i))
			f.left -= n
			i += int(n)
		} else {
			f.head = append(f.head, b[i])
			i++
			n := payload(f.head)
			if n < 0 {
				continue
			}
			f.last = f.last || f.head[0]&0x0f == opClose
			f.left, f.head = uint64(n), f.head[:0]
		}
		if f.left == 0 {
			whole = i
		}
	}
	return whole
}

// payload is how long the payload behind a frame's head is; -1: the head is not
// complete.
func payload(head []byte) int64 {
	if len(head) < 2 {
		return -1
	}
	size, n := 2, int64(head[1]&0x7f)
	switch n {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if head[1]&0x80 != 0 { // masked, which a server must not do
		size += 4
	}
	switch {
	case len(head) < size:
		return -1
	case n == 126:
		return int64(binary.BigEndian.Uint16(head[2:]))
	case n == 127:
		return int64(binary.BigEndian.Uint64(head[2:]) &^ (1 << 63))
	default:
		return n
	}
}
