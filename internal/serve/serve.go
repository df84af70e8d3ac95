// Package serve is what `cube serve` does: it opens the engine, the store and the
// service, puts the API and the data plane before them, and closes all of it in
// order when it is told to stop. Sandboxes run on.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime/debug"
	"time"

	cube "cubesandbox"
	"cubesandbox/internal/ca"
	"cubesandbox/internal/local"
	"cubesandbox/internal/secret"
	"cubesandbox/service"
	"cubesandbox/sqlite"
)

// Options say what to serve, and where.
type Options struct {
	local.Options
	// API and Data are the addresses to listen on, host:port; port 0 takes a free one.
	API, Data string
	// Domain is what sandboxes' host names end in, with the port where that is not
	// 80 or 443; empty: localhost and the port of Data.
	Domain string
	// NoAuth serves without a key, on loopback addresses only.
	NoAuth bool
	// Dialect for clients that say neither: "cube" or "e2b".
	Dialect string
	// MaxTimeout bounds the timeouts of sandboxes; 0: nothing does.
	MaxTimeout time.Duration
	// CPUs may be promised to sandboxes; 0: 256 for each of the machine's.
	CPUs int
	// Booted and Restored are the sizes of the pools.
	Booted, Restored int
	Version          string
}

// stopTime bounds how long requests under way may go on after a stop was asked for.
const stopTime = 10 * time.Second

// Run serves until ctx ends. ready is called once, when requests are answered.
func Run(ctx context.Context, o Options, ready func(State)) (err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := o.check(); err != nil {
		return err
	}
	session, err := local.Open(ctx, o.Options)
	if err != nil {
		return err
	}
	defer closing(&err, "the engine", session.Close)
	store, err := sqlite.Open(filepath.Join(o.StateDir, "cube.db"))
	if err != nil {
		return err
	}
	defer closing(&err, "the store", store.Close)
	svc, err := service.Open(ctx, service.Config{
		Engine: session.Engine, Store: store, Images: session.Images, Names: local.NamesIn(o.StateDir),
		Collectors: []service.Collector{session.Engine}, DownAt: local.DownAt(o.RunDir),
		CPUs: o.CPUs, Booted: o.Booted, Restored: o.Restored, Log: o.Log,
	})
	if err != nil {
		return err
	}
	if err := local.ForgetDown(o.RunDir); err != nil {
		o.Log.Warn("that everything was ended is told to the next start again", "error", err)
	}
	defer closing(&err, "the service", svc.Close)
	return o.front(ctx, svc, ready)
}

// closing closes what was opened; an error of the closing does not hide another.
func closing(err *error, what string, shut func() error) {
	if cerr := shut(); cerr != nil {
		*err = errors.Join(*err, fmt.Errorf("close %s: %w", what, cerr))
	}
}

// check refuses what would be open to strangers.
func (o Options) check() error {
	if !o.NoAuth {
		return nil
	}
	for _, addr := range []string{o.API, o.Data} {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return fmt.Errorf("address %q: %w: %w", addr, cube.ErrInvalid, err)
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("--no-auth serves on loopback addresses only, and %s is none: anybody who reaches it could run programs here: %w", addr, cube.ErrInvalid)
		}
	}
	return nil
}

// front puts the two listeners before a service, and waits for the end.
func (o Options) front(ctx context.Context, svc *service.Service, ready func(State)) (err error) {
	key := ""
	if !o.NoAuth {
		if key, _, err = secret.Open(o.StateDir); err != nil {
			return err
		}
	}
	apiLn, err := net.Listen("tcp", o.API)
	if err != nil {
		return listenError("API", o.API, "--listen", err)
	}
	defer apiLn.Close()
	dataLn, err := net.Listen("tcp", o.Data)
	if err != nil {
		return listenError("data plane", o.Data, "--data-listen", err)
	}
	defer dataLn.Close()
	if o.Domain == "" {
		o.Domain = fmt.Sprintf("localhost:%d", dataLn.Addr().(*net.TCPAddr).Port)
	}
	authority, err := ca.Open(o.StateDir, hostOf(o.Domain))
	if err != nil {
		return err
	}
	// Starting takes more memory than serving does.
	debug.FreeOSMemory()
	state := State{
		Version: o.Version, API: apiLn.Addr().String(), Data: dataLn.Addr().String(),
		Domain: o.Domain, StateDir: o.StateDir, CA: authority.Path(), Auth: !o.NoAuth, StartedAt: time.Now().UTC(),
	}
	defer func() { state.remove(o.RunDir) }()
	f, err := o.fronts(svc, key, authority)
	if err != nil {
		return err
	}
	defer f.close()
	return f.serve(ctx, apiLn, dataLn, func() error {
		if state, err = state.Announce(o.RunDir); err != nil {
			return err
		}
		o.Log.Info("serving", "api", state.API, "data", state.Data, "domain", state.Domain, "version", o.Version)
		if ready != nil {
			ready(state)
		}
		return nil
	})
}

func listenError(what, addr, flag string, err error) error {
	return fmt.Errorf("listen for the %s: %w; something else uses %s, or choose another address with %s", what, err, addr, flag)
}

func hostOf(domain string) string {
	if host, _, err := net.SplitHostPort(domain); err == nil {
		return host
	}
	return domain
}
