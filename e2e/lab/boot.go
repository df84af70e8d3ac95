package lab

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"cubesandbox/internal/serve"
)

// bootIDFile is where the kernel says which boot of the machine this is.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// command is a command line of cube. After a power cut it is told that the
// machine was booted anew: in a mount namespace of its own, with another file over
// the kernel's, before it becomes cube.
func (s *Server) command(args []string) *exec.Cmd {
	program := filepath.Join(s.opt.BinDir, "cube")
	cmd := exec.Command(program, args...)
	if s.bootID != "" {
		const become = `mount --bind "$1" ` + bootIDFile + ` && shift && exec "$@"`
		cmd = exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "/bin/sh", "-c", become, "sh", s.bootID, program}, args...)...)
	}
	return cmd
}

// newBoot makes the next Start one after a boot of the machine.
func (s *Server) newBoot() error {
	b := make([]byte, 16)
	rand.Read(b) // never fails: it ends the program instead
	s.bootID = filepath.Join(filepath.Dir(s.opt.StateDir), fmt.Sprintf("boot-%x", b[:4]))
	return os.WriteFile(s.bootID, fmt.Appendf(nil, "%x-%x-%x-%x-%x\n", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), 0o444)
}

// announced is what the server that was started last says of itself, once it does. This
// process may see another boot than it, so serve.Running would not know it.
func (s *Server) announced() (state serve.State, ok bool) {
	b, err := os.ReadFile(filepath.Join(s.opt.RunDir, "serve.json"))
	if err != nil || json.Unmarshal(b, &state) != nil {
		return serve.State{}, false // not yet
	}
	return state, state.PID == s.cmd.Process.Pid
}

// killBooted ends what a killed test left in a boot of its own.
func killBooted(runDir, stateDir string) error {
	boots, err := filepath.Glob(filepath.Join(filepath.Dir(stateDir), "boot-*"))
	if err != nil || len(boots) == 0 {
		return err
	}
	return killProcesses(func() ([]int, error) { return processesOf("", runDir, stateDir) })
}
