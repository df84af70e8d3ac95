package bench

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	cube "cubesandbox"
)

//go:embed guest.py
var guestProgram []byte

const (
	guestPort = 18081
	guestPath = "/root/cube-bench.py"
)

// guest is the program of guest.py in one sandbox.
type guest struct{ c http.Client }

// startGuest puts the program into a sandbox and returns when it serves.
func (b *bench) startGuest(ctx context.Context, id cube.SandboxID) (*guest, error) {
	sh := b.Connect(id)
	defer sh.Close()
	if err := sh.WriteFile(ctx, guestPath, guestProgram); err != nil {
		return nil, err
	}
	if err := sh.Run(ctx, "/usr/bin/python3", guestPath, strconv.Itoa(guestPort)); err != nil {
		return nil, err
	}
	return b.guestOver(id, true), nil
}

// guestIn reaches the program in a sandbox that was made from one in which it was started.
func (b *bench) guestIn(id cube.SandboxID) *guest { return b.guestOver(id, false) }

// guestOver reaches it over one connection, or over one for each request: what is left of
// closed ones for a minute is saved too.
func (b *bench) guestOver(id cube.SandboxID, one bool) *guest {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return b.Engine.Dial(ctx, id, 0, guestPort) }
	return &guest{http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: !one}}}
}

func (g *guest) get(ctx context.Context, what string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://guest/"+what, nil)
	if err != nil {
		return "", err
	}
	res, err := g.c.Do(req)
	if err != nil {
		return "", fmt.Errorf("program inside: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("program inside: /%s: %s", what, res.Status)
	}
	return string(b), err
}

// hold makes the guest hold so many MiB of "memory" or "files".
func (g *guest) hold(ctx context.Context, what string, mib int) error {
	_, err := g.get(ctx, fmt.Sprintf("%s?mib=%d", what, mib))
	return err
}

// change writes so many MiB of what is held anew.
func (g *guest) change(ctx context.Context, mib int) error {
	_, err := g.get(ctx, fmt.Sprintf("change?mib=%d", mib))
	return err
}

// read reads all that is held.
func (g *guest) read(ctx context.Context) error {
	_, err := g.get(ctx, "read")
	return err
}

// touch writes to each page of what is held, and returns how long that took inside.
func (g *guest) touch(ctx context.Context) (time.Duration, error) { return g.seconds(ctx, "touch") }

// watch has the guest notice from now on that it stands still.
func (g *guest) watch(ctx context.Context) error {
	_, err := g.get(ctx, "watch")
	return err
}

// hello is an answer and nothing else.
func (g *guest) hello(ctx context.Context) error {
	_, err := g.get(ctx, "hello")
	return err
}

// gap is the longest that the guest stood still since the last call.
func (g *guest) gap(ctx context.Context) (time.Duration, error) { return g.seconds(ctx, "gap") }

func (g *guest) seconds(ctx context.Context, what string) (time.Duration, error) {
	s, err := g.get(ctx, what)
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("program inside: %s %q: %w", what, s, err)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
