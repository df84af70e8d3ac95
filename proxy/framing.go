package proxy

import (
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"
)

// framing is how the messages of a stream are told apart, and how its end is said.
// Each message has a prefix of 5 bytes: flags, and the length of the rest.
type framing int

const (
	unframed framing = iota
	// connectFraming: the end is a message with flag 2, JSON (Connect, "End-of-stream").
	connectFraming
	// webFraming: it is a message with flag 128, the trailers as text (gRPC-Web).
	webFraming
	// grpcFraming: it is in the trailers (gRPC over HTTP/2).
	grpcFraming
)

// Flags of the message that says the end.
const (
	connectEnd = 1 << 1
	webEnd     = 1 << 7
)

// restarting is what the client of a stream hears when the server stops.
const restarting = "the server is restarting; connect again"

// grpcUnavailable is gRPC's code for what may be tried again.
const grpcUnavailable = 14

// framingOf reads a Content-Type. gRPC-Web as text is left to itself.
func framingOf(contentType string) framing {
	kind, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	switch kind = strings.TrimSpace(kind); {
	case strings.HasPrefix(kind, "application/connect+"):
		return connectFraming
	case kind == "application/grpc-web" || strings.HasPrefix(kind, "application/grpc-web+"):
		return webFraming
	case kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+"):
		return grpcFraming
	default:
		return unframed
	}
}

// goodbye is the message that says that a stream ended because the server stops; nil
// where trailers say it.
func (f framing) goodbye() []byte {
	switch f {
	case connectFraming:
		return message(connectEnd, `{"error":{"code":"unavailable","message":"`+restarting+`"}}`)
	case webFraming:
		return message(webEnd, "grpc-status: "+strconv.Itoa(grpcUnavailable)+"\r\ngrpc-message: "+restarting+"\r\n")
	default:
		return nil
	}
}

// trailers say the same, where they do.
func (f framing) trailers(h http.Header) {
	if f == grpcFraming {
		h.Set("Grpc-Status", strconv.Itoa(grpcUnavailable))
		h.Set("Grpc-Message", restarting)
	}
}

func message(flags byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(text))), text...)
}

// scanner finds where messages end.
type scanner struct {
	framing framing
	head    [5]byte
	have    int    // how much of head has been seen, while left is 0
	left    uint32 // bytes of the message that have not been seen
	ending  bool   // the message that is under way is the one that says the end
	last    bool   // that one has been seen whole
}

// scan looks at the next bytes, and returns how many of them are up to the last end of
// a message; 0: there is none.
func (s *scanner) scan(b []byte) (whole int) {
	for i := 0; i < len(b); {
		if s.left > 0 {
			n := min(uint64(s.left), uint64(len(b)-i))
			s.left -= uint32(n)
			i += int(n)
		} else {
			s.head[s.have] = b[i]
			s.have++
			i++
			if s.have < len(s.head) {
				continue
			}
			s.have, s.left = 0, binary.BigEndian.Uint32(s.head[1:])
			s.ending = s.framing.ends(s.head[0])
		}
		if s.left == 0 {
			whole, s.last = i, s.last || s.ending
		}
	}
	return whole
}

// ends reports whether the flags are those of the message that says the end.
func (f framing) ends(flags byte) bool {
	return f == connectFraming && flags&connectEnd != 0 || f == webFraming && flags&webEnd != 0
}
