package service_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	cube "cubesandbox"
	"cubesandbox/internal/fdrpc"
	"cubesandbox/network"
	"cubesandbox/network/api"
	"cubesandbox/network/networktest"
	"cubesandbox/network/service"
)

var ctx = context.Background()

// serve starts a service for these users and returns the path of its socket.
func serve(t *testing.T, uids ...uint32) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "network.sock")
	l, err := fdrpc.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(slog.New(slog.DiscardHandler), f, uids)
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(l) })
	t.Cleanup(func() { l.Close(); wg.Wait(); s.Close(); f.Close() })
	return path
}

func client(t *testing.T, path string) *network.Client {
	t.Helper()
	c := network.NewClient(path)
	t.Cleanup(func() { c.Close() })
	return c
}

func plug(t *testing.T, c *network.Client) (string, *networktest.Guest, *os.File) {
	t.Helper()
	g, nic := networktest.NewGuest(t)
	name := networktest.NewLife()
	if err := c.Plug(ctx, name, nic); err != nil {
		t.Fatal(err)
	}
	return name, g, nic
}

// echo answers every connection with what it is sent.
func echo(t *testing.T, g *networktest.Guest, port uint16) {
	l := g.Listen(t, port, false)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
}

func wantEcho(t *testing.T, c *network.Client, name string, port uint16) {
	t.Helper()
	conn, err := c.Dial(ctx, api.Dial{Life: name, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "hello")
	conn.CloseWrite()
	if b, err := io.ReadAll(conn); string(b) != "hello" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestDialReachesTheLifeThatItNames(t *testing.T) {
	c := client(t, serve(t, 0))
	var names []string
	for i := range 5 {
		name, g, _ := plug(t, c)
		names = append(names, name)
		l := g.Listen(t, 80, false)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				fmt.Fprintf(conn, "guest %d", i)
				conn.Close()
			}
		}()
	}
	for i, name := range names {
		conn, err := c.Dial(ctx, api.Dial{Life: name, Port: 80})
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(conn); string(b) != fmt.Sprintf("guest %d", i) {
			t.Errorf("life %d: got %q", i, b)
		}
		conn.Close()
	}
}

func TestErrorsAreThoseOfPackageCube(t *testing.T) {
	c := client(t, serve(t, 0))
	name, g, nic := plug(t, c)
	dial := func(d api.Dial) error { _, err := c.Dial(ctx, d); return err }
	_, other := networktest.NewGuest(t)
	for what, e := range map[string]struct{ got, want error }{
		"unknown life":       {dial(api.Dial{Life: networktest.NewLife(), Port: 1}), cube.ErrNotFound},
		"no life at all":     {dial(api.Dial{Port: 1}), cube.ErrNotFound},
		"closed port":        {dial(api.Dial{Life: name, Port: 1, Via: api.ViaDirect}), cube.ErrRefused},
		"port 0":             {dial(api.Dial{Life: name}), cube.ErrInvalid},
		"control port":       {dial(api.Dial{Life: name, Port: 49982, Via: api.ViaDirect}), cube.ErrInvalid},
		"long timeout":       {dial(api.Dial{Life: name, Port: 1, TimeoutMS: 60_001}), cube.ErrInvalid},
		"name of a life":     {c.Plug(ctx, "../x", nic), cube.ErrInvalid},
		"same life, new NIC": {c.Plug(ctx, name, other), cube.ErrExists},
		"not a NIC":          {c.Plug(ctx, networktest.NewLife(), os.Stderr), cube.ErrInvalid},
	} {
		if !errors.Is(e.got, e.want) {
			t.Errorf("%s: got %v, want %v", what, e.got, e.want)
		}
	}
	if err := c.Plug(ctx, name, nic); err != nil {
		t.Errorf("same life, same NIC: got %v, want nothing to happen", err)
	}
	g.Stop()
	for dial(api.Dial{Life: name, Port: 1, Via: api.ViaDirect, TimeoutMS: 10}) != nil {
		if s, err := c.Stats(ctx, name); err != nil || !s.Up {
			break
		}
	}
	if err := dial(api.Dial{Life: name, Port: 1}); !errors.Is(err, network.ErrUnreachable) {
		t.Errorf("dead guest: got %v, want ErrUnreachable", err)
	}
}

func TestUnplugEndsConnectionsAndCanBeRepeated(t *testing.T) {
	c := client(t, serve(t, 0))
	name, g, _ := plug(t, c)
	echo(t, g, 80)
	conn, err := c.Dial(ctx, api.Dial{Life: name, Port: 80})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		if err := c.Unplug(ctx, name); err != nil {
			t.Errorf("unplug: %v", err)
		}
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connection: got %v, want ECONNRESET", err)
	}
	if _, err := c.Dial(ctx, api.Dial{Life: name, Port: 80}); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("dial: got %v, want ErrNotFound", err)
	}
}

func TestLivesAreListedInPages(t *testing.T) {
	path := serve(t, 0)
	c := client(t, path)
	var want []string
	for range 5 {
		name, _, _ := plug(t, c)
		want = append(want, name)
	}
	slices.Sort(want)
	rpc, err := fdrpc.Dial(ctx, path, api.Protocol, api.Version, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rpc.Close()
	var got []string
	for after, more := "", true; more; after = got[len(got)-1] {
		var p api.Page
		if _, err := rpc.Call(ctx, api.MethodList, api.List{After: after, Limit: 2}, nil, &p); err != nil || len(p.Lives) > 2 || len(p.Lives) == 0 {
			t.Fatalf("got %v, %v, want one or two lives", p, err)
		}
		got, more = append(got, p.Lives...), p.More
	}
	if !slices.Equal(got, want) {
		t.Errorf("in pages: got %v, want %v", got, want)
	}
	if all, err := c.Lives(ctx); err != nil || !slices.Equal(all, want) {
		t.Errorf("Lives: got %v, %v, want %v", all, err, want)
	}
}

func TestDescriptorsComeBackAndCanBePluggedInElsewhere(t *testing.T) {
	first := client(t, serve(t, 0))
	name, g, nic := plug(t, first)
	nic.Close() // the keeper was killed
	again, err := first.NIC(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := first.Unplug(ctx, name); err != nil {
		t.Fatal(err)
	}
	second := client(t, serve(t, 0))
	if err := second.Plug(ctx, name, again); err != nil {
		t.Fatal(err)
	}
	echo(t, g, 80)
	wantEcho(t, second, name, 80)
}

func TestListenerComesBackAndServes(t *testing.T) {
	c := client(t, serve(t, 0))
	f, err := c.Listener(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestOtherUsersAreDenied(t *testing.T) {
	c := client(t, serve(t, 12345)) // this test is somebody else
	if err := c.Connect(ctx); !errors.Is(err, cube.ErrUnavailable) || fdrpc.Code(err) != "denied" {
		t.Errorf("got %v, want an error of code denied", err)
	}
}

func TestClientConnectsAgainAfterARestart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	start := func() func() {
		l, err := fdrpc.Listen(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		s := service.New(slog.New(slog.DiscardHandler), nil, []uint32{0})
		var wg sync.WaitGroup
		wg.Go(func() { s.Serve(l) })
		return func() { l.Close(); wg.Wait(); s.Close() }
	}
	stop := start()
	c := client(t, path)
	name, g, nic := plug(t, c)
	echo(t, g, 80)
	wantEcho(t, c, name, 80)
	stop()
	if _, err := c.Lives(ctx); !errors.Is(err, cube.ErrUnavailable) {
		t.Errorf("while it is down: got %v, want ErrUnavailable", err)
	}
	defer start()()
	if lives, err := c.Lives(ctx); err != nil || len(lives) != 0 {
		t.Errorf("after the restart: got %v, %v, want no lives", lives, err)
	}
	if err := c.Plug(ctx, name, nic); err != nil {
		t.Fatal(err)
	}
	wantEcho(t, c, name, 80)
}
