package lab

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ProgramsTemplate is the name of the template in which programs of the real world run: of
// base, and of what e2e/programs/template adds.
const ProgramsTemplate = "programs"

// BuildPrograms makes ProgramsTemplate in a new folder below dir. Its root file system is
// kept by content, as that of base is.
func (s *Server) BuildPrograms(dir string) error {
	dir = filepath.Join(dir, ProgramsTemplate)
	err := os.CopyFS(dir, os.DirFS(filepath.Join(Root(), "templates", "base")))
	if err == nil {
		err = os.Remove(filepath.Join(dir, "template.toml"))
	}
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(filepath.Join(Root(), "e2e", "programs", "template")))
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

// BuildGo makes the Go program of a folder beside the test, as it goes into a sandbox; to
// is a file for it. Its sources are read, so that go test knows that the result depends on
// them.
func BuildGo(ctx context.Context, folder, to string) ([]byte, error) {
	if err := fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			_, err = os.ReadFile(filepath.Join(folder, name))
		}
		return err
	}); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", to, "./"+folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build ./%s: %w: %s", folder, err, out)
	}
	return os.ReadFile(to)
}
