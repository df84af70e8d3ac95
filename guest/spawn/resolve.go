package spawn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"cubesandbox/guest/bareinit"
	"cubesandbox/guest/users"

	"golang.org/x/sys/unix"
)

// InfoDir is where the sandbox's id and generation stand, read-only for users.
const InfoDir = "/run/cube"

// CgroupRoot is the cgroup, as the users' mount namespace shows it, that holds
// one child for each started process.
const CgroupRoot = "/sys/fs/cgroup/user"

// DefaultPath is the PATH of a process whose environment names none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// encode makes a request what init can do without thinking.
func (q *Request) encode(u users.User) ([]byte, error) {
	if strings.ContainsRune(q.Cgroup, '/') {
		return nil, &Error{FailureOther, fmt.Sprintf("cgroup name %q has a slash", q.Cgroup)}
	}
	env := environment(u, q.Env)
	files, err := candidates(q.Cmd, env)
	if err != nil {
		return nil, err
	}
	var flags uint32
	if q.Terminal {
		flags |= bareinit.FlagTerminal
	}
	if q.Cwd == "" { // an account without its home directory can still run programs
		flags |= bareinit.FlagCwdOptional
	}
	words := [bareinit.RequestWords]uint32{
		bareinit.WordFlags: flags, bareinit.WordUID: u.UID, bareinit.WordGID: u.GID,
		bareinit.WordGroups: uint32(len(u.Groups)), bareinit.WordCandidates: uint32(len(files)),
		bareinit.WordArgs: uint32(1 + len(q.Args)), bareinit.WordEnv: uint32(len(env)),
	}
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	for _, g := range u.Groups {
		b = binary.LittleEndian.AppendUint32(b, g)
	}
	group := ""
	if q.Cgroup != "" {
		group = CgroupRoot + "/" + q.Cgroup
	}
	n := len(files) + 1 + len(q.Args) + len(env)
	for _, list := range [][]string{{group, Resolve(u, q.Cwd)}, files, {q.Cmd}, q.Args, env} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return nil, &Error{FailureCommand, "error starting process: an argument has a NUL byte"}
			}
			b = append(append(b, s...), 0)
		}
	}
	if len(b) > bareinit.MaxRequest || n > bareinit.MaxStrings {
		return nil, &Error{FailureCommand, "error starting process: arguments and environment are too long (2 MiB, 65536 strings)"}
	}
	return b, nil
}

// failure says in words what step of a request failed.
func (q *Request) failure(u users.User, step, errno uint32) *Error {
	err := unix.Errno(errno)
	switch step {
	case bareinit.StepClone:
		if err == unix.EAGAIN {
			return &Error{FailureLimit, "error starting process: too many processes in this sandbox"}
		}
	case bareinit.StepCwd:
		dir := Resolve(u, q.Cwd)
		switch {
		case errors.Is(err, unix.ENOENT):
			return &Error{FailureCwd, fmt.Sprintf("cwd '%s' does not exist", dir)}
		case errors.Is(err, unix.ENOTDIR):
			return &Error{FailureCwd, fmt.Sprintf("cwd '%s' is not a directory", dir)}
		}
		return &Error{FailureCwd, fmt.Sprintf("cwd '%s': %v", dir, err)}
	case bareinit.StepExec:
		if err == unix.ENOENT && !strings.Contains(q.Cmd, "/") {
			return &Error{FailureCommand, fmt.Sprintf("error starting process '%s': executable file not found in PATH", q.Cmd)}
		}
		return &Error{FailureCommand, fmt.Sprintf("error starting process '%s': %v", q.Cmd, err)}
	}
	return &Error{FailureOther, fmt.Sprintf("error starting process '%s': step %d: %v", q.Cmd, step, err)}
}

// Resolve makes a path absolute: "", "~" and relative paths start at the user's
// home directory.
func Resolve(u users.User, path string) string {
	switch {
	case path == "" || path == "~":
		return u.Home
	case strings.HasPrefix(path, "~/"):
		return filepath.Join(u.Home, path[2:])
	case !filepath.IsAbs(path):
		return filepath.Join(u.Home, path)
	}
	return filepath.Clean(path)
}

// inSandbox is by which programs made for E2B know where they run.
const inSandbox = "E2B_SANDBOX=true"

// environment puts the request's variables over those of the account; of equal
// names the last wins.
func environment(u users.User, extra []string) []string {
	all := append([]string{"PATH=" + DefaultPath, "HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name, inSandbox}, extra...)
	at := make(map[string]int, len(all))
	env := all[:0]
	for _, kv := range all {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.IndexByte(kv, 0) >= 0 {
			continue
		}
		if i, seen := at[name]; seen {
			env[i] = kv
			continue
		}
		at[name] = len(env)
		env = append(env, kv)
	}
	return env
}

// candidates are the files to try for a command, as a shell would: those in the
// process's PATH, unless the command has a slash.
func candidates(cmd string, env []string) ([]string, error) {
	if cmd == "" {
		return nil, &Error{FailureCommand, "error starting process: no command given"}
	}
	if strings.Contains(cmd, "/") {
		return []string{cmd}, nil
	}
	path := DefaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	var files []string
	for dir := range strings.SplitSeq(path, ":") {
		files = append(files, "./"+cmd)
		if dir != "" {
			files[len(files)-1] = dir + "/" + cmd
		}
	}
	return files, nil
}
