package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// variants makes definitions that differ from the template base in what a sandbox may
// use alone: they have its root file system.
func variants(t *testing.T, names ...string) []string {
	t.Helper()
	base, err := filepath.Abs("../../templates/base")
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for i, name := range names {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.CopyFS(dir, os.DirFS(base)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "template.toml")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte(`name = "base"`), fmt.Appendf(nil, "name = %q", name), 1)
		text = regexp.MustCompile(`(?m)^memoryMiB = .*$`).ReplaceAll(text, fmt.Appendf(nil, "memoryMiB = %d", 256+i))
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// buildTemplate makes a template beside the server, as `cube template build` does, with
// some variables.
func buildTemplate(s *lab.Server, dir string, env ...string) (cube.ImageID, error) {
	cmd := s.Command("template", "build", dir, "--json")
	cmd.Env = append(os.Environ(), env...)
	var said, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", filepath.Base(dir), err, errs.String())
	}
	var img cube.Image
	if err := json.Unmarshal([]byte(said.String()), &img); err != nil {
		return "", fmt.Errorf("build %s: %w", filepath.Base(dir), err)
	}
	return img.ID, nil
}

// builder builds and deletes templates by name until the power is cut.
type builder struct {
	t      *testing.T
	s      *lab.Server
	l      *ledger
	random *rand.Rand
	dirs   []string
	cut    *atomic.Bool
	env    []string // of what builds
}

func (b *builder) work(ctx context.Context) {
	for ctx.Err() == nil {
		if err := b.one(ctx); err != nil {
			if !b.cut.Load() {
				b.t.Errorf("before the cut: %v", err)
			}
			return
		}
	}
}

func (b *builder) one(ctx context.Context) (err error) {
	dir := b.dirs[b.random.IntN(len(b.dirs))]
	name := filepath.Base(dir)
	tpl := b.l.templates[name]
	if tpl == nil {
		tpl = &template{}
		b.l.templates[name] = tpl
	}
	tpl.doubted = true
	if tpl.id == "" {
		tpl.id, err = buildTemplate(b.s, dir, b.env...)
	} else if err = b.s.API.DeleteImage(ctx, name); err == nil {
		tpl.id = ""
	}
	tpl.doubted = err != nil
	return err
}

// checkTemplates: those that were built are there by their names and sandboxes are made
// from them, those that were deleted are not.
func (v *verifier) checkTemplates() {
	for name, tpl := range v.l.templates {
		made, err := v.s.API.Create(v.ctx, client.NewSandbox{Template: name})
		switch {
		case err == nil:
			if tpl.id == "" && !tpl.doubted {
				v.t.Errorf("the template %s, which was deleted, is there", name)
			}
			v.kill(made.ID)
			v.l.show("templates there by name")
		case tpl.doubted && errors.Is(err, cube.ErrNotFound):
		case tpl.id == "" && errors.Is(err, cube.ErrNotFound):
			v.l.show("deleted templates not there")
		default:
			v.t.Errorf("the template %s, %s: %v", name, tpl.id, err)
		}
		*tpl = template{}
		if err == nil {
			tpl.id = cube.ImageID(made.Template)
		}
	}
}
