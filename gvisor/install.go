package gvisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// node names our part of the cgroup tree after the run directory.
func node(runDir string) string {
	h := sha256.Sum256([]byte(runDir))
	return hex.EncodeToString(h[:4])
}

// install copies cube-sentry and cube-network to where they stay for as long as
// an image needs them. The version names the directory; a rebuild of the same
// version replaces the files.
func install(ctx context.Context, conf Config) (string, error) {
	src := filepath.Join(conf.BinDir, "cube-sentry")
	out, err := exec.CommandContext(ctx, src, "version").Output()
	if err != nil {
		return "", fmt.Errorf("%s version: %w; build it with make", src, err)
	}
	dst := installedSentry(conf.StateDir, strings.TrimSpace(string(out)))
	dir := filepath.Dir(dst)
	for _, d := range []string{conf.StateDir, filepath.Dir(dir), dir} {
		if err := mkdirOpen(d); err != nil {
			return "", err
		}
	}
	for _, name := range []string{"cube-sentry", "cube-network"} {
		if err := copyIfChanged(filepath.Join(conf.BinDir, name), filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return dst, nil
}

func copyIfChanged(src, dst string) error {
	want, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(dst); err == nil && bytes.Equal(have, want) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(dst), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, bytes.NewReader(want))
	if err = errors.Join(err, f.Chmod(0o755), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), dst)
}

func lastLine(path string) string {
	b, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}
