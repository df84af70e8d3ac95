package template

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"cubesandbox/internal/progress"
)

// What no sandbox reads and what would be most of the files.
var leftOut = []string{"man", "doc", "info", "locale", "lintian", "bug"}

// aptOptions of this machine that a build must share to get through: its proxy,
// and what it thinks of clocks and dates.
var aptOptions = regexp.MustCompile(`(?m)^Acquire::(?:https?::Proxy|Check-Date|Check-Valid-Until|Retries|https?::Timeout) "[^"]*";$`)

// debian fills the folder root with Debian and runs the hooks. work is a folder
// for files of the build. It returns how many packages there are.
func debian(ctx context.Context, def *Definition, suite string, sources []source, root, work string, report *progress.Reporter) (packages int, err error) {
	if err := need("mmdebstrap", "mmdebstrap"); err != nil {
		return 0, err
	}
	args, err := debianArgs(ctx, def, suite, sources, root, work)
	if err != nil {
		return 0, err
	}
	step := report.Begin("install Debian " + suite)
	count := installCounter{step: step}
	env := []string{
		"TMPDIR=" + work,
		"DEBIAN_FRONTEND=noninteractive",
		"CUBE_USER=" + def.User.Name,
		"CUBE_UID=" + strconv.Itoa(def.User.UID),
	}
	args = append([]string{"-c", aptApart, "sh"}, args...)
	if err := contained(ctx, env, count.line, "sh", args...); err != nil {
		step.Fail(err)
		return 0, err
	}
	installed, err := filepath.Glob(filepath.Join(root, "var/lib/dpkg/info/*.list"))
	if err != nil {
		return 0, err
	}
	step.Done(fmt.Sprintf("%d packages", len(installed)))
	return len(installed), nil
}

func debianArgs(ctx context.Context, def *Definition, suite string, sources []source, root, work string) ([]string, error) {
	sourcesFile := filepath.Join(work, "machine.sources")
	if err := os.WriteFile(sourcesFile, []byte(deb822(sources)), 0o644); err != nil {
		return nil, err
	}
	dump, err := exec.CommandContext(ctx, "apt-config", "dump").Output()
	if err != nil {
		return nil, fmt.Errorf("apt-config dump: %w; a template is made on Debian or a system with its apt", err)
	}
	// In a file, not as arguments: a proxy's address may hold a password.
	options := "APT::Install-Recommends \"false\";\n" + strings.Join(aptOptions.FindAllString(string(dump), -1), "\n") + "\n"
	optionsFile := filepath.Join(work, "apt.conf")
	if err := os.WriteFile(optionsFile, []byte(options), 0o600); err != nil {
		return nil, err
	}
	args := []string{"--mode=root", "--variant=minbase", "--verbose", "--format=directory", "--aptopt=" + optionsFile,
		"--skip=cleanup/tmp"} // what is in /tmp is a matter of the hooks
	if len(def.Packages) > 0 {
		args = append(args, "--include="+strings.Join(def.Packages, ","))
	}
	for _, name := range leftOut {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/"+name+"/*")
	}
	args = append(args, "--essential-hook="+withPages)
	for _, hook := range def.Hooks {
		args = append(args, "--customize-hook="+filepath.Join(def.absDir(), hook))
	}
	return append(args, "--customize-hook="+withoutPages, suite, root, sourcesFile), nil
}

// A JVM has its manual pages in a folder of its own and links to them from that of all,
// which is left out with what is in it: it could not be set up. So that folder is there
// while packages are set up, and goes if nothing is in it. The time of the one above
// stays: a template without such links is the same, byte by byte.
const (
	withPages    = `cd "$1/usr/share/man" && was=$(stat -c %Y .) && mkdir -p man1 && touch -d "@$was" .`
	withoutPages = `cd "$1/usr/share/man" && was=$(stat -c %Y .) && { [ ! -d man1 ] || rmdir --ignore-fail-on-non-empty man1; } && touch -d "@$was" .`
)

// aptApart hides this machine's own apt from the build. mmdebstrap ends by cleaning
// apt's lists, and cleans those of the machine if a hook has removed its settings
// from the new root's /tmp.
const aptApart = `mount -t tmpfs tmpfs /var/lib/apt && mount -t tmpfs tmpfs /var/cache/apt && exec mmdebstrap "$@"`

// installCounter turns what apt and dpkg say into progress: each package is
// unpacked and set up once.
type installCounter struct{ step *progress.Step }

var newlyInstalled = regexp.MustCompile(`^\d+ upgraded, (\d+) newly installed`)

func (c installCounter) line(text string) {
	if m := newlyInstalled.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits only; a number too large merely spoils the bar
		c.step.Grow(2 * n)
	}
	if strings.HasPrefix(text, "Unpacking ") || strings.HasPrefix(text, "Setting up ") {
		c.step.Add(1)
	}
}
