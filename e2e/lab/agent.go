package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"cubesandbox/gvisor/keeperapi"
)

// Agent sends signals to the agent of a life, which is process 1 of its kernel, by that
// kernel's control socket: nothing else can reach it. One that is no more, or not there
// yet, takes every signal.
func (l *Lab) Agent(life keeperapi.Life) func(syscall.Signal) error {
	return func(sig syscall.Signal) error {
		err := l.signalAgent(life.Life, sig)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		return err
	}
}

func (l *Lab) signalAgent(life string, sig syscall.Signal) error {
	b, err := os.ReadFile(filepath.Join(l.opt.RunDir, "lives", life, "record.json"))
	if err != nil {
		return err
	}
	var record struct {
		Control string `json:"control"`
	}
	if err := json.Unmarshal(b, &record); err != nil {
		return err
	}
	c, err := net.DialTimeout("unix", record.Control, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	// A kernel that is stopped answers when it goes on; the signal is there then.
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	// Process 0 stands for the first of the container, whose id is that of the life.
	err = json.NewEncoder(c).Encode(map[string]any{
		"method": "containerManager.Signal", "arg": map[string]any{"CID": life, "Signo": int(sig), "PID": 0, "Mode": 0},
	})
	if err != nil {
		return err
	}
	var answer struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
	}
	if err := json.NewDecoder(c).Decode(&answer); err != nil {
		return err
	}
	if !answer.Success && !strings.Contains(answer.Err, "no such process") {
		return fmt.Errorf("signal %v to the agent of life %s: %s", sig, life, answer.Err)
	}
	return nil
}
