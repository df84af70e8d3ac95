// Package abuse has the tests of what programs inside a sandbox do to it on purpose: they
// use up its processes, memory, disk, descriptors and connections, replace its files, stop
// and kill what they can reach. Each time the agent goes on to answer, or the sandbox is
// said to be unhealthy or dead, with the reason; a snapshot from before brings it back
// whole; and another sandbox beside it answers all the time.
//
// make check does all, make soak with a million files; with no CUBE_FORM some are done, and less
// of them, for who works on it.
package abuse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cubesandbox/e2e/lab"
)

// s is the server of all tests in this package.
var s *lab.Server

func TestMain(m *testing.M) {
	os.Exit(lab.Main(m, &s, ready,
		"TestForkBombsLeaveTheAgentAnswering",
		"TestASandboxWhoseAgentIsStoppedIsUnhealthyUntilItGoesOnOrIsRolledBack",
		"TestRootThatStopsAndKillsLeavesTheAgentAnsweringOrIsTheReason",
	))
}

// template is base with limits that are quickly reached.
const template = "abused"

// limits take the place of those of base.
const limits = `[limits]
memoryMiB = 512
cpus = 2
diskMiB = 512
pids = 256
`

// ready makes the template, and uses everything once, so that what is opened at first use
// looks like no leak.
func ready(ctx context.Context) error {
	if err := buildTemplate(); err != nil {
		return fmt.Errorf("template %s: %w", template, err)
	}
	return s.Warm(ctx, template)
}

func buildTemplate() error {
	tmp, err := os.MkdirTemp("", "cube-abuse-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	dir := filepath.Join(tmp, template)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(lab.Root(), "templates", "base"))); err != nil {
		return err
	}
	def := filepath.Join(dir, "template.toml")
	b, err := os.ReadFile(def)
	if err != nil {
		return err
	}
	text, _, there := strings.Cut(string(b), "[limits]\n")
	if !there {
		return errors.New("that of base names no limits")
	}
	text = strings.Replace(text, `name = "base"`, `name = "`+template+`"`, 1) + limits
	if err := os.WriteFile(def, []byte(text), 0o600); err != nil {
		return err
	}
	if out, err := s.Command("template", "build", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
