package agentclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
)

// agentThat is an agent that does this with files.
func agentThat(t *testing.T, does http.HandlerFunc) Dialer {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/files", does)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return func(ctx context.Context, port uint16) (net.Conn, error) {
		if port != agentapi.ControlPort {
			t.Errorf("dialled port %d", port)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", srv.Listener.Addr().String())
	}
}

func TestFilesAreStreamedToTheAgent(t *testing.T) {
	sent := bytes.Repeat([]byte("some text "), 1_000_000)
	dial := agentThat(t, func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("got %d bytes, %v; want %d", len(got), err, len(sent))
		}
		io.WriteString(w, `{"entries":3,"bytes":7}`)
	})
	got, err := SendFiles(t.Context(), dial, bytes.NewReader(sent))
	if err != nil || got.Entries != 3 || got.Bytes != 7 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// endless is a tar that has no end.
type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.n += int64(len(p))
	return len(p), nil
}

func TestWhyFilesWereRefusedIsToldBeforeAllWereSent(t *testing.T) {
	dial := agentThat(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.CopyN(io.Discard, r.Body, 1<<20)
		http.Error(w, `unpack "./x": no space left on device`, http.StatusUnprocessableEntity)
		http.NewResponseController(w).Flush()
		io.Copy(io.Discard, r.Body)
	})
	_, err := SendFiles(t.Context(), dial, new(endless))
	if !errors.Is(err, cube.ErrAgent) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v", err)
	}
}

func TestAFileThatCannotBeReadIsNotTheAgentsFault(t *testing.T) {
	dial := agentThat(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			t.Error("half a tar looks like a whole one")
		}
	})
	broken := errors.New("input/output error")
	r := io.MultiReader(strings.NewReader("something"), errorReader{broken})
	if _, err := SendFiles(t.Context(), dial, r); !errors.Is(err, broken) || errors.Is(err, cube.ErrAgent) {
		t.Errorf("got %v", err)
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

func TestAnAgentThatTakesNothingIsGivenUp(t *testing.T) {
	done := make(chan struct{})
	defer close(done)
	dial := agentThat(t, func(http.ResponseWriter, *http.Request) { <-done })
	_, err := sendFiles(t.Context(), dial, new(endless), 200*time.Millisecond)
	if !errors.Is(err, cube.ErrAgent) || !strings.Contains(err.Error(), "taken nothing") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := SendFiles(ctx, dial, new(endless)); !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancellation: %v", err)
	}
}
