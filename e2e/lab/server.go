package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cubesandbox/client"
	"cubesandbox/e2e/leak"
	"cubesandbox/internal/local"
	"cubesandbox/internal/secret"
	"cubesandbox/internal/serve"
)

// Server is a lab whose engine is held by `cube serve`, a process of its own.
type Server struct {
	*Lab
	State serve.State
	Key   string
	API   *client.Client

	flags, env        []string // env: see SetEnv
	proven            int      // see Proven
	controlled        []byte   // what the files hold that prove a power cut
	bootID            string   // a file with the id of the boot that the server is to see; empty: the machine's
	cmd               *exec.Cmd
	ended             chan error
	apiAddr, dataAddr string
}

// answerTime bounds how long a server may take until it answers, and to end.
const answerTime = 30 * time.Second

// OpenServer makes a lab and starts a server in it, on free ports, without pools
// where flags do not say otherwise. Close it.
func OpenServer(ctx context.Context, flags ...string) (*Server, error) {
	return OpenServerOn(ctx, Disk{}, flags...)
}

// Start starts the server, on the ports that it had.
func (s *Server) Start(ctx context.Context) error {
	if s.apiAddr == "" { // chosen here, so that its command line stays the same
		var err error
		if s.apiAddr, s.dataAddr, err = freeAddrs(); err != nil {
			return err
		}
	}
	args := append([]string{
		"serve", "--state-dir", s.opt.StateDir, "--run-dir", s.opt.RunDir, "--bin-dir", s.opt.BinDir, "--debug",
		"--listen", s.apiAddr, "--data-listen", s.dataAddr, "--pool-booted", "0", "--pool-restored", "0",
	}, s.flags...)
	s.cmd = s.command(args)
	s.cmd.Env = append(os.Environ(), s.env...)
	log, err := os.OpenFile(s.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd.Stderr = log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C is for the test
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.ended = make(chan error, 1)
	go func() { s.ended <- s.cmd.Wait() }()
	if err := s.waitReady(ctx); err != nil {
		return fmt.Errorf("%w: %s", err, s.lastLog())
	}
	s.Where.PIDs = []int{s.cmd.Process.Pid}
	if s.Key, err = secret.Read(s.opt.StateDir); err != nil && !strings.Contains(strings.Join(s.flags, " "), "no-auth") {
		return err
	}
	if s.API != nil {
		s.API.Close()
	}
	s.API, err = client.New(client.Options{APIURL: "http://" + s.State.API, SandboxURL: "http://" + s.State.Data, Key: s.Key})
	return err
}

// freeAddrs are two addresses that nobody uses.
func freeAddrs() (a, b string, err error) {
	var addrs [2]string
	for i := range addrs {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", err
		}
		defer ln.Close()
		addrs[i] = ln.Addr().String()
	}
	return addrs[0], addrs[1], nil
}

func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if state, ok := s.announced(); ok {
			s.State = state
			return nil
		}
		select {
		case err := <-s.ended:
			s.ended <- err
			return fmt.Errorf("the server has ended: %v", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// LogPath is where the server logs.
func (s *Server) LogPath() string { return filepath.Join(s.opt.RunDir, "serve.log") }

// Warnings are the last lines of the log that are more than information, n at most: few,
// for of a failure in CI only the last lines are shown, and what was wrong comes before.
func (s *Server) Warnings(n int) string {
	b, err := os.ReadFile(s.LogPath())
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(strings.Split(string(b), "\n"), func(line string) bool {
		return !strings.Contains(line, "level=WARN") && !strings.Contains(line, "level=ERROR")
	})
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (s *Server) lastLog() string {
	b, err := os.ReadFile(s.LogPath())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// Signal sends the server a signal and waits for its end.
func (s *Server) Signal(sig syscall.Signal) error {
	if err := s.cmd.Process.Signal(sig); err != nil {
		return err
	}
	select {
	case err := <-s.ended:
		s.ended <- nil
		var exit *exec.ExitError
		if sig == syscall.SIGKILL && errors.As(err, &exit) {
			return nil
		}
		return err
	case <-time.After(answerTime):
		return fmt.Errorf("the server does not end after %v", answerTime)
	}
}

// Close ends the server and everything else.
func (s *Server) Close(ctx context.Context) error {
	var errs []error
	if s.API != nil {
		s.API.Close()
	}
	if s.cmd != nil && s.cmd.Process != nil {
		errs = append(errs, s.Signal(syscall.SIGTERM))
	}
	_, err := local.Shutdown(ctx, s.opt)
	return errors.Join(append(errs, err, s.removeFiles())...)
}

// Env is what clients of the server need, as KEY=VALUE.
func (s *Server) Env() []string {
	_, port, _ := strings.Cut(s.State.Data, ":")
	return []string{
		"E2B_API_URL=http://" + s.State.API, "E2B_SANDBOX_URL=http://" + s.State.Data, "E2B_API_KEY=" + s.Key, "E2B_DOMAIN=" + s.State.Domain,
		"CUBE_API_URL=http://" + s.State.API, "CUBE_API_KEY=" + s.Key, "CUBE_TEMPLATE_ID=base",
		"CUBE_PROXY_NODE_IP=127.0.0.1", "CUBE_PROXY_PORT_HTTP=" + port, "CUBE_CA_FILE=" + s.State.CA,
	}
}

// Guard notes what is there and, when the test ends, takes away what it made, and
// fails it for everything else that is left.
func (s *Server) Guard(t *testing.T) {
	t.Helper()
	s.API.Close()
	before, err := leak.Take(s.Where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.clean(t)
		s.API.Close()
		http.DefaultClient.CloseIdleConnections()
		if err := leak.Check(s.Where, before, patience); err != nil {
			t.Errorf("left behind:\n%v", err)
		}
	})
}

// clean takes away every sandbox and snapshot.
func (s *Server) clean(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	boxes, err := s.API.List(ctx, client.Query{})
	if err != nil {
		t.Errorf("list: %v", err)
	}
	for _, b := range boxes {
		if err := s.API.Kill(ctx, b.ID); err != nil {
			t.Errorf("kill %s: %v", b.ID, err)
		}
	}
	snaps, err := s.API.Snapshots(ctx, "")
	if err != nil {
		t.Errorf("snapshots: %v", err)
	}
	for _, snap := range snaps {
		if err := s.API.DeleteImage(ctx, string(snap.ID)); err != nil {
			t.Errorf("delete %s: %v", snap.ID, err)
		}
	}
}

// Command is the cube program, for this server's directories, in the same boot.
func (s *Server) Command(args ...string) *exec.Cmd {
	return s.command(append(args, "--run-dir", s.opt.RunDir, "--state-dir", s.opt.StateDir, "--bin-dir", s.opt.BinDir))
}

// LivesHere counts the lives that the keeper has.
func (s *Server) LivesHere(ctx context.Context) (int, error) {
	h, err := local.LookAt(ctx, s.opt.RunDir)
	return len(h.Lives), err
}
