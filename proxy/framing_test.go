package proxy

import (
	"bytes"
	"testing"
)

func TestWhichAnswersAreStreamsOfMessages(t *testing.T) {
	for kind, want := range map[string]framing{
		"application/connect+proto": connectFraming, "application/connect+json; charset=utf-8": connectFraming,
		"application/grpc": grpcFraming, "application/grpc+proto": grpcFraming, "Application/GRPC;x=y": grpcFraming,
		"application/grpc-web": webFraming, "application/grpc-web+json": webFraming,
		"": unframed, "application/json": unframed, "application/proto": unframed, "application/grpc-web-text": unframed,
		"application/grpc-web-text+proto": unframed, "application/grpcx": unframed, "text/event-stream": unframed, "application/connect": unframed,
	} {
		if got := framingOf(kind); got != want {
			t.Errorf("%q: got %d, want %d", kind, got, want)
		}
	}
}

// FuzzEndsOfMessages: they are found wherever the bytes are cut, and a message behind
// the last end is whole for whoever reads on from there.
func FuzzEndsOfMessages(f *testing.F) {
	f.Add(append(message(0, "hello"), message(connectEnd, "{}")...), 3)
	f.Add(message(webEnd, ""), 1)
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 1}, 2)
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		piece = max(1, piece%64)
		for _, kind := range []framing{connectFraming, webFraming, grpcFraming} {
			whole, cut := scanner{framing: kind}, scanner{framing: kind}
			want, got := whole.scan(b), 0
			for i := 0; i < len(b); i += piece {
				if n := cut.scan(b[i:min(i+piece, len(b))]); n > 0 {
					got = i + n
				}
			}
			if got != want || cut != whole {
				t.Errorf("in pieces of %d: the last end is at %d, want %d; %+v, want %+v", piece, got, want, cut, whole)
			}
			rest := scanner{framing: kind}
			if rest.scan(b[want:]) != 0 {
				t.Errorf("behind the last end, at %d, is another", want)
			}
		}
	})
}

// FuzzEndsOfFrames is the same for WebSockets.
func FuzzEndsOfFrames(f *testing.F) {
	f.Add(append([]byte{0x81, 5, 'h', 'e', 'l', 'l', 'o'}, closeFrame...), 3)
	f.Add([]byte{0x82, 126, 0, 1, 7, 0x82, 127, 0, 0, 0, 0, 0, 0, 0, 1, 7}, 1)
	f.Add([]byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5}, 2)
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		piece = max(1, piece%64)
		var whole, cut frames
		want, got := whole.scan(b), 0
		for i := 0; i < len(b); i += piece {
			if n := cut.scan(b[i:min(i+piece, len(b))]); n > 0 {
				got = i + n
			}
		}
		if got != want || cut.left != whole.left || cut.last != whole.last || !bytes.Equal(cut.head, whole.head) {
			t.Errorf("in pieces of %d: the last end is at %d, want %d; %+v, want %+v", piece, got, want, cut, whole)
		}
		if whole.between() && want != len(b) {
			t.Errorf("between frames behind %d of %d bytes", want, len(b))
		}
	})
}
