package agentclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/envdpb/process"
	"cubesandbox/guest/envdpb/process/processconnect"

	"connectrpc.com/connect"
)

// guest is a process service that says what a test wants.
type guest struct {
	processconnect.UnimplementedProcessHandler
	events func(*connect.Request[process.StartRequest]) []*process.ProcessEvent
	stdin  bytes.Buffer
}

func (g *guest) Start(_ context.Context, r *connect.Request[process.StartRequest], s *connect.ServerStream[process.StartResponse]) error {
	for _, e := range g.events(r) {
		if err := s.Send(&process.StartResponse{Event: e}); err != nil {
			return err
		}
	}
	return nil
}

func (g *guest) SendInput(_ context.Context, r *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	g.stdin.Write(r.Msg.Input.GetStdin())
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

func (g *guest) CloseStdin(context.Context, *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}

func start() *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 9}}}
}

func out(b string) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(b)}}}}
}

func end(code int32) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{ExitCode: code, Exited: true, Status: fmt.Sprint("exit status ", code)}}}
}

// client returns a Client of a server, on whatever port it asks for.
func client(t *testing.T, h http.Handler, token string) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	c := New(func(ctx context.Context, _ uint16) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", srv.Listener.Addr().String())
	}, token)
	t.Cleanup(func() { c.Close(); srv.Close() })
	return c
}

func processes(t *testing.T, g *guest) *Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(g))
	return client(t, mux, "")
}

func TestRunReturnsWhatTheProgramLeft(t *testing.T) {
	g := &guest{events: func(r *connect.Request[process.StartRequest]) []*process.ProcessEvent {
		return []*process.ProcessEvent{start(), out("a"), {}, out(r.Msg.Process.GetCwd() + r.Header().Get("Authorization")), end(3)}
	}}
	c := processes(t, g)
	r, err := c.Run(context.Background(), "x", nil, RunOptions{User: "root", Cwd: "/w ", Stdin: bytes.Repeat([]byte("i"), 3<<20)})
	if err != nil || r.PID != 9 || string(r.Stdout) != "a/w Basic cm9vdDo=" || r.ExitCode != 3 || r.Status != "exit status 3" {
		t.Errorf("result %+v, %v", r, err)
	}
	if g.stdin.Len() != 3<<20 {
		t.Errorf("%d bytes of input arrived", g.stdin.Len())
	}
}

func TestRunRefusesWhatAHostileGuestSays(t *testing.T) {
	for name, events := range map[string][]*process.ProcessEvent{
		"no end":          {start(), out("a")},
		"after the end":   {start(), end(0), out("a")},
		"too much output": {start(), out(strings.Repeat("x", 1000)), out(strings.Repeat("x", 1000)), end(0)},
	} {
		c := processes(t, &guest{events: func(*connect.Request[process.StartRequest]) []*process.ProcessEvent { return events }})
		if r, err := c.Run(context.Background(), "x", nil, RunOptions{MaxOutput: 1500}); err == nil {
			t.Errorf("%s: %+v is believed", name, r)
		}
	}
	c := client(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/connect+proto")
		w.Write([]byte{0, 0xff, 0xff, 0xff, 0xff}) // a message of 4 GiB
		w.Write(make([]byte, 1<<20))
	}), "")
	if _, err := c.Run(context.Background(), "x", nil, RunOptions{}); err == nil {
		t.Error("a message of 4 GiB is read")
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	c := processes(t, &guest{events: func(*connect.Request[process.StartRequest]) []*process.ProcessEvent {
		<-release
		return nil
	}})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Run(ctx, "x", nil, RunOptions{}); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("error %v", err)
	}
}

func TestFilesCarryTokenAndErrors(t *testing.T) {
	c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		body, _ := io.ReadAll(r.Body)
		switch q.Get("path") {
		case "missing":
			w.WriteHeader(404)
			io.WriteString(w, `{"code":404,"message":"path 'missing' does not exist"}`)
		case "nonsense":
			w.WriteHeader(500)
			io.WriteString(w, strings.Repeat("<", 1<<20))
		default:
			fmt.Fprint(w, r.Method, q.Get("path"), q.Get("username"), r.Header.Get("X-Access-Token"), string(body))
		}
	}), "tok")
	ctx := context.Background()
	if b, err := c.ReadFile(ctx, "root", "/a b?", 100); err != nil || string(b) != "GET/a b?roottok" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := c.ReadFile(ctx, "", "/long", 3); err == nil {
		t.Error("a file over the limit is read")
	}
	if err := c.WriteFile(ctx, "", "/a", []byte("x")); err != nil {
		t.Error(err)
	}
	var failed *FileError
	if _, err := c.ReadFile(ctx, "", "missing", 3); !errors.As(err, &failed) || failed.Status != 404 {
		t.Errorf("error %v", err)
	}
	if _, err := c.ReadFile(ctx, "", "nonsense", 3); !errors.Is(err, cube.ErrAgent) || len(err.Error()) > 2000 {
		t.Errorf("error %.3000v", err)
	}
}

// dialTo answers a dial request with text.
func dialTo(text string) Dialer {
	return func(context.Context, uint16) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			theirs.Read(make([]byte, 4096))
			io.WriteString(theirs, text)
		}()
		return ours, nil
	}
}

func TestDialLocalUnderstandsAnswers(t *testing.T) {
	const up = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: cube-dial\r\n\r\n"
	c, err := DialLocal(context.Background(), dialTo(up+"hello"), 80)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); string(b) != "hello" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	for text, want := range map[string]error{
		"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n":      cube.ErrRefused,
		"HTTP/1.1 200 OK\r\n\r\n":                                    cube.ErrAgent,
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\n\r\n": cube.ErrAgent,
		"nonsense\r\n\r\n":                                           cube.ErrAgent,
		"":                                                           cube.ErrAgent,
		"HTTP/1.1 101 x\r\nA: " + strings.Repeat("x", 2*maxAnswer) + "\r\n\r\n": cube.ErrAgent,
	} {
		if _, err := DialLocal(context.Background(), dialTo(text), 80); !errors.Is(err, want) {
			t.Errorf("%.40q: %v, want %v", text, err, want)
		}
	}
}

func TestDialLocalEndsWithItsContext(t *testing.T) {
	silent := func(context.Context, uint16) (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		return ours, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := DialLocal(ctx, silent, 80); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
