package agent

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"golang.org/x/sys/unix"

	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/layer"
	"cubesandbox/guest/spawn"
)

// bareRoot is where the root file system is seen without what is mounted on it, while
// files are put in place: so nothing is written to other file systems, and what users
// have below our own /boot is reached.
const bareRoot = spawn.InfoDir + "/root"

// errInUse refuses files for a sandbox that has begun to live.
var errInUse = errors.New("files: they are put in place once, before the first configure")

// handleFiles puts the files of an earlier life in place.
func (a *Agent) handleFiles(w http.ResponseWriter, r *http.Request) {
	// An answer may come before all of the body is read.
	answer := http.NewResponseController(w)
	if err := answer.EnableFullDuplex(); err != nil {
		http.Error(w, "files: "+err.Error(), http.StatusInternalServerError)
		return
	}
	done, err := a.putFiles(r.Body)
	switch {
	case errors.Is(err, errInUse):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	default:
		reply(w, done)
	}
	if answer.Flush() == nil {
		io.Copy(io.Discard, r.Body) // else the answer would be lost in a reset
	}
}

// putFiles unpacks a tar over the root file system.
func (a *Agent) putFiles(body io.Reader) (agentapi.Unpacked, error) {
	a.mu.Lock()
	if a.generation != 0 || a.filled {
		a.mu.Unlock()
		return agentapi.Unpacked{}, errInUse
	}
	a.filled = true
	a.mu.Unlock()
	leave, err := showBareRoot()
	if err != nil {
		return agentapi.Unpacked{}, err
	}
	done, err := layer.Unpack(bareRoot, body)
	return done, errors.Join(err, leave())
}

// showBareRoot mounts bareRoot, in our own mount namespace.
func showBareRoot() (leave func() error, err error) {
	if err := os.Mkdir(bareRoot, 0o700); err != nil {
		return nil, fmt.Errorf("files: %w", err)
	}
	if err := unix.Mount("/", bareRoot, "", unix.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("files: show the root file system at %s: %w", bareRoot, err)
	}
	return func() error {
		if err := unix.Unmount(bareRoot, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("files: unmount %s: %w", bareRoot, err)
		}
		return os.Remove(bareRoot)
	}, nil
}
