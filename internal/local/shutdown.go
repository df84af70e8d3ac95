package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cubesandbox/gvisor/keeperapi"
)

// Ended says what Shutdown has ended.
type Ended struct {
	// Ran says whether there was anything.
	Ran       bool `json:"ran"`
	Sandboxes int  `json:"sandboxes"`
}

// Shutdown ends every sandbox, the network processes and the keepers of a run
// directory. A keeper that runs is asked itself, of whatever version it is; one
// that was killed has left its records, and is started once more to end what they
// name.
func Shutdown(ctx context.Context, o Options) (Ended, error) {
	if os.Geteuid() != 0 {
		return Ended{}, ErrNotRoot
	}
	dirs, err := keeperDirs(o.RunDir)
	if err != nil || len(dirs) == 0 {
		return Ended{}, err
	}
	if !allAnswer(ctx, dirs) {
		s, err := Open(ctx, o)
		if err != nil {
			return Ended{}, err
		}
		if err := s.Close(); err != nil {
			return Ended{}, err
		}
		if dirs, err = keeperDirs(o.RunDir); err != nil {
			return Ended{}, err
		}
	}
	e := Ended{Ran: true}
	var errs []error
	for _, dir := range dirs {
		n, err := shutdown(ctx, dir)
		if e.Sandboxes += n; err != nil {
			errs = append(errs, fmt.Errorf("keeper of %s: %w", dir, err))
		} else if dir != o.RunDir {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	os.Remove(filepath.Join(o.RunDir, "k")) // where it is empty now
	if err := errors.Join(errs...); err != nil {
		return e, err
	}
	return e, noteDown(o.RunDir)
}

// downName is the file that says when all that ran was ended because somebody asked
// for that: what the records call running did not die.
const downName = "down"

func noteDown(runDir string) error {
	return os.WriteFile(filepath.Join(runDir, downName), []byte(time.Now().UTC().Format(time.RFC3339Nano)+"\n"), 0o600)
}

// DownAt is when everything in a run directory was last ended by Shutdown, and no
// server has been told since; zero for never.
func DownAt(runDir string) time.Time {
	b, err := os.ReadFile(filepath.Join(runDir, downName))
	if err != nil {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(b)))
	if err != nil {
		return time.Time{}
	}
	return t
}

// ForgetDown is for whoever has recorded it.
func ForgetDown(runDir string) error {
	err := os.Remove(filepath.Join(runDir, downName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func allAnswer(ctx context.Context, dirs []string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for _, dir := range dirs {
		c, err := dialKeeper(ctx, dir)
		if err != nil {
			return false
		}
		c.Close()
	}
	return true
}

// shutdown has one keeper end with all that it has, and says how many sandboxes
// those were.
func shutdown(ctx context.Context, dir string) (sandboxes int, err error) {
	c, err := dialKeeper(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_, lives, err := look(ctx, c)
	if err != nil {
		return 0, err
	}
	for _, l := range lives {
		if l.Labels.Role == keeperapi.RoleCurrent {
			sandboxes++
		}
	}
	if _, err := c.Call(ctx, keeperapi.MethodShutdown, nil, nil, nil); err != nil {
		return 0, err
	}
	return sandboxes, nil
}
