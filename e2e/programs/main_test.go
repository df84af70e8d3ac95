// Package programs has the tests of programs under work: a Go program whose collector runs,
// a JVM, node, redis, sqlite and numpy are snapshotted, cloned, rolled back and paused at
// random moments, in chains, and every copy has to hold what it must, byte by byte, and to
// go on working.
//
// make test and make check have a short form each, make soak the long one. CUBE_SEED chooses
// other moments, CUBE_PROGRAM the programs whose names fit a regular expression, CUBE_SOAK_TIME
// how long each works.
package programs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// s is the server of all tests in this package.
var s *lab.Server

// goheap is the Go program, as it goes into a sandbox.
var goheap []byte

func TestMain(m *testing.M) { os.Exit(lab.Main(m, &s, ready)) }

// ready makes the template and the Go program, and uses everything once, so that what is
// opened at first use looks like no leak.
func ready(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "cube-programs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := buildTemplate(filepath.Join(dir, template)); err != nil {
		return err
	}
	if goheap, err = buildGo(ctx, filepath.Join(dir, "goheap")); err != nil {
		return err
	}
	b, err := s.API.Create(ctx, client.NewSandbox{Template: template})
	if err != nil {
		return err
	}
	_, err = lab.Shell(ctx, s.API, b, "true")
	return errors.Join(err, s.API.Kill(ctx, b.ID))
}

// template is the name of the one in which programs run.
const template = "programs"

// buildTemplate makes it, of base and of what this package adds. Its root file system is
// kept by content, as that of base is.
func buildTemplate(dir string) error {
	err := os.CopyFS(dir, os.DirFS(filepath.Join(lab.Root(), "templates", "base")))
	if err == nil {
		err = os.Remove(filepath.Join(dir, "template.toml"))
	}
	if err == nil {
		err = os.CopyFS(dir, os.DirFS("template"))
	}
	if err != nil {
		return fmt.Errorf("the template's folder: %w", err)
	}
	var said strings.Builder
	cmd := s.Command("template", "build", dir)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the template: %w: %s", err, said.String())
	}
	return nil
}

// buildGo makes the Go program. Its sources are read, so that go test knows that the
// result depends on them.
func buildGo(ctx context.Context, to string) ([]byte, error) {
	if err := fs.WalkDir(os.DirFS("goheap"), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			_, err = os.ReadFile(filepath.Join("goheap", name))
		}
		return err
	}); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", to, "./goheap")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build ./goheap: %w: %s", err, out)
	}
	return os.ReadFile(to)
}

// form is what a test is to do in make test, in make check and in make soak.
func form[T any](test, check, soak T) T {
	switch lab.Form() {
	case "ci":
		return check
	case "long":
		return soak
	}
	return test
}
