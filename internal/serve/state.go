package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// State is what a server that answers says of itself, in RUN/serve.json.
type State struct {
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	API       string    `json:"api"`  // host:port
	Data      string    `json:"data"` // host:port
	Domain    string    `json:"domain"`
	StateDir  string    `json:"stateDir"`
	CA        string    `json:"ca"` // path of the certificate
	Auth      bool      `json:"auth"`
	StartedAt time.Time `json:"startedAt"`
	// Ticks and Boot make sure that the process is this one and no other that has its
	// number: when it began, in ticks since boot, and which boot that was.
	Ticks int64  `json:"ticks"`
	Boot  string `json:"boot"`
}

const stateName = "serve.json"

// Announce says in a run directory that this process serves, and what.
func (s State) Announce(runDir string) (State, error) {
	var err error
	s.PID, s.Boot = os.Getpid(), bootID()
	if s.Ticks, err = startTicks(s.PID); err != nil {
		return s, err
	}
	return s, s.write(runDir)
}

func (s State) write(runDir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(runDir, stateName)
	tmp := fmt.Sprintf("%s.%d", path, s.PID)
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Running is the server of a run directory; ok is false where none runs.
func Running(runDir string) (s State, ok bool, err error) {
	b, err := os.ReadFile(filepath.Join(runDir, stateName))
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, false, nil
	}
	if err != nil {
		return State{}, false, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return State{}, false, fmt.Errorf("%s: %w", filepath.Join(runDir, stateName), err)
	}
	return s, s.PID > 0 && s.lives(), nil
}

// lives reports whether the process is there, and is the one that wrote.
func (s State) lives() bool {
	ticks, err := startTicks(s.PID)
	return err == nil && ticks == s.Ticks && bootID() == s.Boot
}

// remove takes the file of a server that stops away, unless another has written one.
func (s State) remove(runDir string) {
	if now, _, err := Running(runDir); err == nil && now.PID == s.PID && now.Ticks == s.Ticks {
		os.Remove(filepath.Join(runDir, stateName))
	}
}
