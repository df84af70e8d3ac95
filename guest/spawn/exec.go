package spawn

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"cubesandbox/guest/users"

	"golang.org/x/sys/unix"
)

// CgroupRoot is the cgroup, as the users' mount namespace shows it, that holds
// one child for each started process.
const CgroupRoot = "/sys/fs/cgroup/user"

// DefaultPath is the PATH of a process whose environment names none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// start runs in init: it resolves a request in the users' mount namespace and
// forks. fds are the new process's standard descriptors.
func start(q Request, fds []int) (pid int, err error) {
	u, err := users.Lookup(q.User)
	if err != nil {
		return 0, &Error{FailureUser, err.Error()}
	}
	cwd, err := directory(u, q.Cwd)
	if err != nil {
		return 0, err
	}
	env := environment(u, q.Env)
	path, err := program(q.Cmd, cwd, env)
	if err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{
		Dir: cwd,
		Env: env,
		Sys: &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups},
			Setsid:     true,
			Setctty:    q.Terminal,
			Ctty:       0,
		},
	}
	for _, fd := range fds {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if q.Cgroup != "" {
		fd, err := openCgroup(q.Cgroup)
		if err != nil {
			return 0, &Error{FailureOther, err.Error()}
		}
		defer unix.Close(fd)
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, fd
	}
	pid, err = syscall.ForkExec(path, append([]string{q.Cmd}, q.Args...), attr)
	if err != nil {
		return 0, failure(q, path, err)
	}
	return pid, nil
}

// openCgroup opens a child of CgroupRoot through the users' read-only mount, so
// that whoever gets hold of the descriptor can change nothing with it.
func openCgroup(name string) (int, error) {
	if strings.Contains(name, "/") {
		return -1, fmt.Errorf("cgroup name %q has a slash", name)
	}
	path := CgroupRoot + "/" + name
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open cgroup %s: %w", path, err)
	}
	return fd, nil
}

func failure(q Request, path string, err error) *Error {
	switch {
	case errors.Is(err, unix.EAGAIN):
		return &Error{FailureLimit, "error starting process: too many processes in this sandbox"}
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOEXEC),
		errors.Is(err, unix.E2BIG), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		// The directory was there as root; the user may have no right to enter it.
		if errors.Is(err, unix.EACCES) && unix.Access(path, unix.X_OK) == nil {
			return &Error{FailureCommand, fmt.Sprintf("error starting process '%s': %v (program or working directory)", q.Cmd, err)}
		}
		return &Error{FailureCommand, fmt.Sprintf("error starting process '%s': %v", q.Cmd, err)}
	}
	return &Error{FailureOther, fmt.Sprintf("error starting process '%s': %v", q.Cmd, err)}
}

// directory returns the absolute working directory that a request means.
func directory(u users.User, cwd string) (string, error) {
	abs := Resolve(u, cwd)
	var st unix.Stat_t
	if err := unix.Stat(abs, &st); err != nil {
		if cwd == "" { // an account without its home directory can still run programs
			return "/", nil
		}
		return "", &Error{FailureCwd, fmt.Sprintf("cwd '%s' does not exist", abs)}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", &Error{FailureCwd, fmt.Sprintf("cwd '%s' is not a directory", abs)}
	}
	return abs, nil
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

// environment puts the request's variables over those of the account; of equal
// names the last wins.
func environment(u users.User, extra []string) []string {
	all := append([]string{"PATH=" + DefaultPath, "HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name}, extra...)
	at := make(map[string]int, len(all))
	env := all[:0]
	for _, kv := range all {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.ContainsRune(kv, 0) {
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

// program finds the file of a command as a shell would: in PATH unless it has a slash.
func program(cmd, cwd string, env []string) (string, error) {
	if cmd == "" {
		return "", &Error{FailureCommand, "error starting process: no command given"}
	}
	if strings.ContainsRune(cmd, 0) {
		return "", &Error{FailureCommand, "error starting process: the command has a NUL byte"}
	}
	if strings.Contains(cmd, "/") {
		if filepath.IsAbs(cmd) {
			return cmd, nil
		}
		return filepath.Join(cwd, cmd), nil
	}
	path := DefaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	for dir := range strings.SplitSeq(path, ":") {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(cwd, dir)
		}
		file := filepath.Join(dir, cmd)
		var st unix.Stat_t
		if unix.Stat(file, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0 {
			return file, nil
		}
	}
	return "", &Error{FailureCommand, fmt.Sprintf("error starting process '%s': executable file not found in PATH", cmd)}
}
