package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// Host is what of the engine runs on this machine.
type Host struct {
	// Info is that of the keeper in the run directory itself; where only others are
	// there, of the first of those.
	keeperapi.Info
	// Keepers are all of them: one for each version of the engine that is in use.
	Keepers []keeperapi.Info
	// PIDs are the keepers and their network processes.
	PIDs []int
	// Lives are those of all keepers, members of pools included.
	Lives []keeperapi.Life
}

// Host asks the keepers, over connections of its own.
func (s *Session) Host(ctx context.Context) (Host, error) { return LookAt(ctx, s.opt.RunDir) }

// LookAt asks the keepers of a run directory. It starts none.
func LookAt(ctx context.Context, runDir string) (Host, error) {
	dirs, err := keeperDirs(runDir)
	if err == nil && len(dirs) == 0 {
		err = fmt.Errorf("no keeper runs in %s: %w", runDir, fs.ErrNotExist)
	}
	if err != nil {
		return Host{}, err
	}
	var h Host
	for _, dir := range dirs {
		if err := h.add(ctx, dir); err != nil {
			return h, fmt.Errorf("keeper of %s: %w", dir, err)
		}
	}
	h.Info = h.Keepers[0]
	slices.Sort(h.PIDs)
	h.PIDs = slices.Compact(h.PIDs)
	return h, nil
}

// askTime bounds how long a keeper may take to say what it has: one that is stopped
// holds up nobody who only wants to know.
const askTime = 10 * time.Second

// add asks one keeper.
func (h *Host) add(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c, err := dialKeeper(ctx, dir)
	if err != nil {
		return err
	}
	defer c.Close()
	info, lives, err := look(ctx, c)
	if err != nil {
		return err
	}
	network, err := servers(info.Network)
	h.Keepers = append(h.Keepers, info)
	h.Lives = append(h.Lives, lives...)
	h.PIDs = append(append(h.PIDs, info.PID), network...)
	return err
}

const keeperSocket = "keeper.sock"

// keeperDirs are the directories in which a keeper runs, or has left a process: the
// run directory first, then those of keepers of other versions.
func keeperDirs(runDir string) ([]string, error) {
	others, err := filepath.Glob(filepath.Join(runDir, "k", "*"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, dir := range append([]string{runDir}, others...) {
		for _, name := range []string{keeperSocket, "network.json"} {
			_, err := os.Stat(filepath.Join(dir, name))
			if err == nil {
				out = append(out, dir)
				break
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	return out, nil
}

func dialKeeper(ctx context.Context, dir string) (*fdrpc.Client, error) {
	return fdrpc.Dial(ctx, filepath.Join(dir, keeperSocket), keeperapi.Protocol, keeperapi.Version, nil)
}

func look(ctx context.Context, c *fdrpc.Client) (info keeperapi.Info, lives []keeperapi.Life, err error) {
	if _, err := c.Call(ctx, keeperapi.MethodInfo, nil, nil, &info); err != nil {
		return info, nil, err
	}
	for q := (keeperapi.List{}); ; {
		var page keeperapi.Lives
		if _, err := c.Call(ctx, keeperapi.MethodList, q, nil, &page); err != nil {
			return info, lives, err
		}
		lives = append(lives, page.Lives...)
		if !page.More {
			return info, lives, nil
		}
		q.After = page.Lives[len(page.Lives)-1].Life
	}
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
