package cli

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"cubesandbox/internal/local"
	"cubesandbox/internal/serve"
)

func (a *app) downCommand() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End the server, every sandbox, the network process and the keeper of this run directory",
		Long: "Saved images stay. Sandboxes that run are lost: pause what you want to keep first.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ended, err := a.down(c.Context())
			if err != nil {
				return fmt.Errorf("down: %w", err)
			}
			return a.print(ended, func(w io.Writer) error {
				if !ended.Ran && !ended.Server {
					_, err := fmt.Fprintf(w, "nothing runs in %s\n", a.where.RunDir)
					return err
				}
				_, err := fmt.Fprintf(w, "%d sandboxes, the network process, the keeper and the server have ended\n", ended.Sandboxes)
				return err
			})
		},
	}
}

// endedAll is the result of `cube down`.
type endedAll struct {
	local.Ended
	Server bool `json:"server"`
}

// down ends the server, then what it would start again, and what a command left
// that was killed.
func (a *app) down(ctx context.Context) (all endedAll, err error) {
	stop, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if all.Server, err = serve.Stop(stop, a.where.RunDir); err != nil {
		return all, err
	}
	own := a.options()
	own.RunDir = filepath.Join(own.RunDir, ownRunDir)
	if _, err := local.Shutdown(ctx, own); err != nil {
		return all, err
	}
	all.Ended, err = local.Shutdown(ctx, a.options())
	return all, err
}

// built is the result of `cube version`.
type built struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	Arch    string `json:"arch"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Say which build this is", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := built{a.version, commit(), runtime.Version(), runtime.GOARCH}
			return a.print(b, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "cube %s, commit %s, %s, %s\n", b.Version, b.Commit, b.Go, b.Arch)
				return err
			})
		},
	}
}

// commit is what this was built from; "+changes" when files were not committed.
// A build that does not know it is asked of the checkout that it stands in.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		revision, modified := "", ""
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = s.Value[:min(12, len(s.Value))]
			case "vcs.modified":
				if s.Value == "true" {
					modified = "+changes"
				}
			}
		}
		if revision != "" {
			return revision + modified
		}
	}
	out, err := exec.Command("git", "-C", besideUs(), "describe", "--always", "--abbrev=12", "--dirty=+changes", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
