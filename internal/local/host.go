package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// Host is what of the engine runs on this machine.
type Host struct {
	keeperapi.Info
	// PIDs are the keeper and the network process.
	PIDs []int
	// Lives are all of them, members of pools included.
	Lives []keeperapi.Life
}

// Host asks the keeper, over a connection of its own.
func (s *Session) Host(ctx context.Context) (Host, error) { return LookAt(ctx, s.opt.RunDir) }

// LookAt asks the keeper of a run directory. It starts none.
func LookAt(ctx context.Context, runDir string) (Host, error) {
	c, err := dialKeeper(ctx, runDir)
	if err != nil {
		return Host{}, err
	}
	defer c.Close()
	return look(ctx, c)
}

func dialKeeper(ctx context.Context, runDir string) (*fdrpc.Client, error) {
	c, err := fdrpc.Dial(ctx, filepath.Join(runDir, "keeper.sock"), keeperapi.Protocol, keeperapi.Version, nil)
	if err != nil {
		return nil, fmt.Errorf("keeper of %s: %w", runDir, err)
	}
	return c, nil
}

func look(ctx context.Context, c *fdrpc.Client) (h Host, err error) {
	if _, err := c.Call(ctx, keeperapi.MethodInfo, nil, nil, &h.Info); err != nil {
		return h, err
	}
	for q := (keeperapi.List{}); ; {
		var page keeperapi.Lives
		if _, err := c.Call(ctx, keeperapi.MethodList, q, nil, &page); err != nil {
			return h, err
		}
		h.Lives = append(h.Lives, page.Lives...)
		if !page.More {
			break
		}
		q.After = page.Lives[len(page.Lives)-1].Life
	}
	network, err := servers(h.Network)
	h.PIDs = append([]int{h.PID}, network...)
	slices.Sort(h.PIDs)
	h.PIDs = slices.Compact(h.PIDs)
	return h, err
}

// servers returns the processes that hold a socket bound at path.
func servers(path string) ([]int, error) {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	inodes := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) == 8 && f[7] == path {
			inodes["socket:["+f[6]+"]"] = true
		}
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && inodes[target] {
			if pid, err := strconv.Atoi(strings.Split(fd, "/")[2]); err == nil && !slices.Contains(out, pid) {
				out = append(out, pid)
			}
		}
	}
	return out, nil
}
