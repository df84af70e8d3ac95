package sentry

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/version"
)

// setup numbers what we ask of gVisor: flags, spec and link. An image can only be
// restored by what was asked when it was made. A test says when it must be raised.
const setup = "s1"

// Version says which images this binary can restore: gVisor's version, the hash
// of our patches and the architecture, which are set at link time, and setup. A
// build without the former is not usable.
func Version() string { return version.Version() + "-" + setup }

// checkBuild refuses a binary whose version does not say what it was built of.
func checkBuild(version string) error {
	if version == "VERSION_MISSING" {
		return errors.New("this binary was built without a version (-X …/runsc/version.version): it could not tell which images it can restore; build it with make")
	}
	patched := Patched
	if says := !strings.Contains(version, "-stock-"); says != patched {
		return fmt.Errorf("this binary calls itself %s, and whether it has gvisor/patches is %v: it would take the images of another for its own; build it with make", version, patched)
	}
	return nil
}

// IsSentry reports whether this process was started as a sentry, or as the small
// helper of one that unmounts /proc: gVisor's subcommands are among its arguments.
func IsSentry() bool {
	return len(os.Args) > 1 && (os.Args[1] == "umount" || strings.HasPrefix(os.Args[1], "--") && slices.Contains(os.Args, "boot"))
}

// RunSentry is the main function of a sentry process. gVisor executes it twice:
// first with the rights to build an empty root, then as nobody. Before the second
// time the keeper has put it into its cgroup.
func RunSentry() {
	collectLater()
	if firstStage(os.Args) {
		err := closeUngiven(os.Args) // before anything else is opened
		if err == nil {
			err = passGate(flagValue(os.Args, "root"))
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "cube-sentry: %v\n", err)
			os.Exit(1)
		}
	}
	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot):   "",
		new(sentrycmd.Umount): "",
	}, []subcommands.Command{})
}

func firstStage(args []string) bool { return slices.Contains(args, "--setup-root") }

func flagValue(args []string, name string) string {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
	}
	return ""
}
