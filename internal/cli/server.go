package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"

	"cubesandbox/client"
	"cubesandbox/internal/secret"
	"cubesandbox/internal/serve"
)

// Where a server is when nobody says otherwise.
const (
	defaultAPI      = "http://127.0.0.1:3000"
	defaultDataPort = "3002"
)

// server is where one is, and what it says of itself when it runs here.
type server struct {
	API     string // address of the API
	Sandbox string // address of the data plane
	Domain  string // what the host names of ports end in
	// StateDir holds the key and the certificate; empty for a server elsewhere.
	StateDir string
	CA       string
	PID      int
	Version  string
	NoAuth   bool
}

// server finds out where the server is: the flags and the environment say it, or the
// server that runs here, or the usual addresses.
func (a *app) server() (server, error) {
	run, running, err := serve.Running(a.where.RunDir)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return server{}, err
	}
	s := server{API: a.apiURL, Sandbox: a.sandboxURL, StateDir: a.where.StateDir}
	if s.API == "" && running {
		s.API = "http://" + run.API
	}
	if s.API == "" {
		s.API = defaultAPI
	}
	u, err := url.Parse(s.API)
	if err != nil || u.Host == "" {
		return s, fmt.Errorf("%w: --api-url %q: want http://HOST:PORT", errUsage, s.API)
	}
	ours := running && u.Host == run.API
	if ours {
		s.StateDir, s.CA, s.PID, s.Version, s.NoAuth, s.Domain = run.StateDir, run.CA, run.PID, run.Version, !run.Auth, run.Domain
	}
	if !loopback(u.Hostname()) {
		s.StateDir = "" // our key is nobody else's business
	}
	if s.Sandbox == "" && ours {
		s.Sandbox = "http://" + run.Data
	}
	if s.Sandbox == "" {
		s.Sandbox = u.Scheme + "://" + net.JoinHostPort(u.Hostname(), defaultDataPort)
	}
	return s, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// key is the API key: of the environment, or else of the state directory. It is
// empty where there is none, or where we may not read it: the server then says what
// it thinks of that.
func (s server) key() (string, error) {
	if key := os.Getenv("CUBE_API_KEY"); key != "" {
		return key, nil
	}
	if s.StateDir == "" || s.NoAuth {
		return "", nil
	}
	key, err := secret.Read(s.StateDir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "", nil
	}
	return key, err
}

// api returns a client for the server.
func (a *app) api() (*client.Client, error) {
	s, err := a.server()
	if err != nil {
		return nil, err
	}
	key, err := s.key()
	if err != nil {
		return nil, err
	}
	o := client.Options{APIURL: s.API, SandboxURL: s.Sandbox, Key: key, UserAgent: "cube-cli/" + a.version}
	if a.debug {
		o.Log = slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return client.New(o)
}

// withAPI runs a command's work with a client.
func (a *app) withAPI(ctx context.Context, work func(context.Context, *client.Client) error) error {
	c, err := a.api()
	if err != nil {
		return err
	}
	defer c.Close()
	return work(ctx, c)
}

// served returns a client where a server is ours to ask: one that was named, or that
// runs in our run directory. It is nil where none is or answers, so that the work is
// done here; one on another machine must answer.
func (a *app) served(ctx context.Context) (*client.Client, error) {
	s, err := a.server()
	if err != nil {
		return nil, err
	}
	if a.apiURL == "" && s.PID == 0 {
		return nil, nil
	}
	c, err := a.api()
	if err != nil {
		return nil, err
	}
	_, err = c.Health(ctx)
	if err == nil {
		return c, nil
	}
	c.Close()
	if errors.Is(err, client.ErrUnreachable) && s.StateDir != "" {
		return nil, nil
	}
	return nil, err
}
