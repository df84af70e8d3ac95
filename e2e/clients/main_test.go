// Package clients has the tests of E2B's and CubeSandbox's own clients, as they are
// published, against `cube serve`: programs as users write them, in testdata.
package clients

import (
	"context"
	"errors"
	"fmt"
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

// home is where scripts/clients.sh keeps the clients.
var home string

func TestMain(m *testing.M) { os.Exit(lab.Main(m, &s, ready)) }

func ready(ctx context.Context) (err error) {
	if home, err = install(ctx); err != nil {
		return err
	}
	return warm(ctx)
}

// install installs the clients, if they are not there.
func install(ctx context.Context) (string, error) {
	script, err := filepath.Abs("../../scripts/clients.sh")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, script)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("scripts/clients.sh: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// warm uses everything once, so that what is opened at first use looks like no leak.
func warm(ctx context.Context) error {
	b, err := s.API.Create(ctx, client.NewSandbox{Template: "base"})
	if err != nil {
		return err
	}
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err == nil {
		_, err = g.Run(ctx, client.Command{Argv: []string{"/bin/true"}, User: "root"})
	}
	return errors.Join(err, s.API.Kill(ctx, b.ID))
}
