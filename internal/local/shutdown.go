package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"cubesandbox/gvisor/keeperapi"
)

// Ended says what Shutdown has ended.
type Ended struct {
	// Ran says whether there was anything.
	Ran       bool `json:"ran"`
	Sandboxes int  `json:"sandboxes"`
}

// Shutdown ends every sandbox, the network process and the keeper of a run
// directory. A keeper that runs is asked itself, of whatever version it is; one
// that was killed has left its records, and is started once more to end what they
// name.
func Shutdown(ctx context.Context, o Options) (Ended, error) {
	if os.Geteuid() != 0 {
		return Ended{}, ErrNotRoot
	}
	_, err := os.Stat(filepath.Join(o.RunDir, "keeper.sock"))
	if errors.Is(err, fs.ErrNotExist) {
		return Ended{}, nil
	}
	if err != nil {
		return Ended{}, err
	}
	c, err := dialKeeper(ctx, o.RunDir)
	if err != nil {
		s, err := Open(ctx, o)
		if err != nil {
			return Ended{}, err
		}
		if err := s.Close(); err != nil {
			return Ended{}, err
		}
		if c, err = dialKeeper(ctx, o.RunDir); err != nil {
			return Ended{}, err
		}
	}
	defer c.Close()
	h, err := look(ctx, c)
	if err != nil {
		return Ended{}, err
	}
	e := Ended{Ran: true}
	for _, l := range h.Lives {
		if l.Labels.Role == keeperapi.RoleCurrent {
			e.Sandboxes++
		}
	}
	if _, err := c.Call(ctx, keeperapi.MethodShutdown, nil, nil, nil); err != nil {
		return Ended{}, fmt.Errorf("keeper of %s: %w", o.RunDir, err)
	}
	return e, nil
}
