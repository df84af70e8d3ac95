package contract

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
	"cubesandbox/e2e/leak"
	"cubesandbox/enginetest"
)

// budget is what the sandboxes of this test may take together, in bytes: few
// enough that it can be used up quickly.
const budget = 1200 << 20

func TestGVisorKeepsTheContract(t *testing.T) {
	l, err := lab.Open(t.Context(), budget)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		err := l.Take(context.Background())
		if err == nil {
			err = l.Shutdown(context.Background())
		}
		if err != nil {
			t.Errorf("shut down: %v", err)
		}
	}()
	base, err := l.Images.Image(l.Base)
	if err != nil {
		t.Fatal(err)
	}
	// The suite opens engines of its own.
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	h := enginetest.Harness{
		Open: func(ctx context.Context) (cube.Engine, error) {
			err := l.Take(ctx)
			return l.Engine, err
		},
		Image:    l.Witness,
		Boot:     cube.BootSpec{Rootfs: base.Rootfs, Limits: base.Limits},
		Put:      lab.Put,
		Get:      lab.Get,
		EchoPort: lab.EchoPort,
		Identity: func(ctx context.Context, _ cube.Engine, id cube.SandboxID) (cube.Identity, error) {
			return identity(ctx, l, id)
		},
		Slow:        func(t *testing.T, e cube.Engine, id cube.SandboxID) { check(t, lab.Fill(t.Context(), e, id, 64)) },
		Crash:       func(ctx context.Context, _ cube.Engine, id cube.SandboxID) error { return l.KillSentry(ctx, id) },
		Images:      func(context.Context) ([]cube.ImageID, error) { return images(l) },
		DeleteImage: func(_ context.Context, id cube.ImageID) error { return l.Images.Delete(id) },
		PoolMembers: l.PoolMembers,
		Faults: map[enginetest.Fault]func(*testing.T, cube.ImageID) func(){
			enginetest.SaveFails:    func(t *testing.T, _ cube.ImageID) func() { return l.FillDisk(t) },
			enginetest.StartFails:   func(t *testing.T, _ cube.ImageID) func() { return l.HideSentry(t) },
			enginetest.OutOfMemory:  func(t *testing.T, _ cube.ImageID) func() { return l.TakeMemory(t, l.Engine) },
			enginetest.Truncated:    func(t *testing.T, id cube.ImageID) func() { l.Truncate(t, id); return func() {} },
			enginetest.Altered:      func(t *testing.T, id cube.ImageID) func() { l.Alter(t, id); return func() {} },
			enginetest.Shortened:    func(t *testing.T, id cube.ImageID) func() { return l.Shorten(t, id) },
			enginetest.ReadError:    func(t *testing.T, id cube.ImageID) func() { return l.BreakDisk(t, id) },
			enginetest.OtherVersion: func(t *testing.T, id cube.ImageID) func() { l.Age(t, id); return func() {} },
		},
		Begin: func(t *testing.T) func() error {
			before, err := leak.Take(l.Where)
			check(t, err)
			return func() error { return leak.Check(l.Where, before, 3*time.Second) }
		},
	}
	enginetest.Run(t, h)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func images(l *lab.Lab) ([]cube.ImageID, error) {
	all, err := l.Images.Images()
	var ids []cube.ImageID
	for _, img := range all {
		ids = append(ids, img.ID)
	}
	return ids, err
}

// identity asks a new process what it sees, and finds out which token opens envd.
func identity(ctx context.Context, l *lab.Lab, id cube.SandboxID) (who cube.Identity, err error) {
	var out []byte
	for _, token := range []string{"", "t", "secret", "t0ken"} { // those of the suite
		sh := l.Shell(id, token)
		r, rerr := sh.Run(ctx, "/usr/bin/env")
		if rerr == nil {
			host, herr := sh.Run(ctx, "/bin/uname", "-n")
			who.AccessToken, who.Hostname = token, strings.TrimSpace(string(host.Stdout))
			out, err = r.Stdout, herr
			sh.Close()
			break
		}
		err = rerr
		sh.Close()
	}
	if out == nil {
		return who, fmt.Errorf("no token opens envd: %w", err)
	}
	who.Env = map[string]string{}
	for line := range strings.Lines(string(out)) {
		if k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			who.Env[k] = v
		}
	}
	return who, err
}
