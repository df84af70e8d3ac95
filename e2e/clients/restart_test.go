package clients

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cubesandbox/client"
)

// stopTime bounds a stop of the server when only streams are under way.
const stopTime = 5 * time.Second

// TestStreamsOfClientsEndWhenTheServerStopsAndAreTakenUpAgain: a program counts on
// through SIGTERM and the next start. The clients hear an error at once, connect to it
// by its pid, and no number is missing.
func TestStreamsOfClientsEndWhenTheServerStopsAndAreTakenUpAgain(t *testing.T) {
	js, py := newestJS, python
	js.folder, py.folder = "restart", "restart"
	for what, l := range map[string]language{"e2b": js, "python": py} {
		t.Run(what, func(t *testing.T) {
			s.Guard(t)
			dir := t.TempDir()
			restarted := make(chan error, 1)
			go func() { restarted <- restartWhen(t, filepath.Join(dir, "counting")) }()
			runProgramIn(t, dir, l, "goes_on", environment(t), nil)
			if err := <-restarted; err != nil {
				t.Error(err)
			}
		})
	}
}

// restartWhen stops the server when a file is there, and starts it again.
func restartWhen(t *testing.T, file string) error {
	ctx := t.Context()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(file); err == nil {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the program has not said that it counts: %w", ctx.Err())
		}
	}
	began := time.Now()
	err := s.Signal(syscall.SIGTERM)
	took := time.Since(began)
	t.Logf("the stop took %v", took)
	if err == nil && took > stopTime {
		err = fmt.Errorf("the stop took %v, with one stream", took)
	}
	return errors.Join(err, s.Start(ctx))
}

// TestNoStreamLooksCompleteWhenTheServerIsKilled: what has no length ends with a reset.
func TestNoStreamLooksCompleteWhenTheServerIsKilled(t *testing.T) {
	s.Guard(t)
	b, err := s.API.Create(t.Context(), client.NewSandbox{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err != nil {
		t.Fatal(err)
	}
	const serve = `exec python3 -c 'import socket, time
s = socket.create_server(("127.0.0.1", 8000))
print("listening", flush=True)
while True:
    c, _ = s.accept()
    c.recv(4096)
    c.sendall(b"HTTP/1.0 200 OK\r\n\r\nfirst\n")
    globals().setdefault("kept", []).append(c)'`
	heard, running := make(chan struct{}), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		_, err := g.Run(ctx, client.Command{Argv: []string{"/bin/sh", "-c", serve}, Stdout: &once{said: heard}})
		running <- err
	}()
	<-heard
	streams := map[string]*bufio.Reader{}
	for _, version := range []string{"1.0", "1.1"} {
		c, err := net.Dial("tcp", s.State.Data)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET / HTTP/%s\r\nHost: 8000-%s.localhost\r\n\r\n", version, b.ID)
		r := bufio.NewReader(c)
		for line := ""; strings.TrimSpace(line) != "first"; {
			if line, err = r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		streams[version] = r
	}
	if err := errors.Join(s.Signal(syscall.SIGKILL), s.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	for version, r := range streams {
		if rest, err := io.ReadAll(r); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("HTTP/%s: %q and %v, want a reset", version, rest, err)
		}
	}
	stop()
	if err := <-running; err == nil {
		t.Error("the program has ended well")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.API.PortURL(b.ID, 8000), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "first\n" {
		t.Errorf("the program inside answers %q (%v) after the restart", line, err)
	}
}

// once closes said when something is written.
type once struct {
	said chan struct{}
	done bool
}

func (o *once) Write(b []byte) (int, error) {
	if !o.done {
		o.done = true
		close(o.said)
	}
	return len(b), nil
}
