package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func root(_ context.Context, c Config) Finding {
	const mend = "the server makes cgroups and namespaces and needs root: sudo cube serve -d (sandboxes themselves run as nobody)"
	switch found := fmt.Sprintf("user %d", c.UID); {
	case c.UID == 0:
		return ok("yes")
	case c.Server.Answers:
		return warn(found+", and the server runs", mend)
	default:
		return fail(found, mend)
	}
}

// oldest is the kernel from which on all works: it has cgroup.kill, and EROFS and
// seccomp as we use them.
var oldest = [2]int{5, 15}

func kernel(_ context.Context, c Config) Finding {
	release, err := c.read("proc/sys/kernel/osrelease")
	if err != nil {
		return fail(err.Error(), "mount /proc")
	}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return warn("Linux "+release, "want Linux 5.15 or newer; this version has a form that is not known")
	}
	if major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return fail("Linux "+release, "install Linux 5.15 or newer")
	}
	return ok("Linux " + release)
}

func arch(_ context.Context, c Config) Finding {
	switch c.Arch {
	case "amd64":
		return ok(c.Arch)
	case "arm64":
		return warn(c.Arch, "it is built for arm64, but tested on x86-64 only")
	}
	return fail(c.Arch, "use a machine with x86-64 or arm64")
}

func memory(_ context.Context, c Config) Finding {
	info, err := c.read("proc/meminfo")
	if err != nil {
		return fail(err.Error(), "mount /proc")
	}
	kib := map[string]int64{}
	for line := range strings.Lines(info) {
		if f := strings.Fields(line); len(f) >= 2 {
			kib[strings.TrimSuffix(f[0], ":")], _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	free, total := kib["MemAvailable"]>>10, kib["MemTotal"]>>10
	found := fmt.Sprintf("%d of %d MiB free", free, total)
	switch {
	case free < 768:
		return fail(found, "a sandbox of the default size takes up to 640 MiB: end other programs, or add memory")
	case free < 2048:
		return warn(found, "this is enough for one or two sandboxes of the default size (512 MiB)")
	}
	return ok(found)
}

func disk(_ context.Context, c Config) Finding {
	dir := existing(c.StateDir)
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fail(fmt.Sprintf("%s: %v", dir, err), "choose another place with --state-dir or $CUBE_STATE")
	}
	free := int64(s.Bavail) * s.Bsize >> 20
	found := fmt.Sprintf("%d MiB free for %s", free, c.StateDir)
	switch {
	case free < 1<<10:
		return fail(found, "a template takes about 500 MiB and a snapshot up to the memory of its sandbox: free space, or choose another place with --state-dir")
	case free < 8<<10:
		return warn(found, "enough to begin; every snapshot and paused sandbox takes up to the memory of its sandbox")
	}
	return ok(found)
}

// existing is a directory, or what is above it and exists.
func existing(dir string) string {
	for dir != "/" && dir != "." {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// controllers are those that the engine uses. Of version 1 it can do without all but
// memory; version 2 alone must have all.
var controllers = []string{"memory", "cpu", "pids"}

func cgroups(_ context.Context, c Config) Finding {
	mounts, err := c.read("proc/self/mountinfo")
	if err != nil {
		return fail(err.Error(), "mount /proc")
	}
	v1, v2 := map[string]bool{}, ""
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(g) < 3 {
			continue
		}
		switch {
		case g[0] == "cgroup2" && v2 == "":
			v2 = f[4]
		case g[0] == "cgroup":
			for _, name := range strings.Split(g[2], ",") {
				v1[name] = true
			}
		}
	}
	switch {
	case len(v1) > 0:
		return oldCgroups(v1, v2)
	case v2 == "":
		return fail("none is mounted", "mount -t cgroup2 none /sys/fs/cgroup")
	}
	have, _ := c.read(filepath.Join(v2, "cgroup.controllers"))
	for _, name := range controllers {
		if !strings.Contains(" "+have+" ", " "+name+" ") {
			return fail("version 2 at "+v2+", without "+name, "hand this controller down to here (in a container), or boot without cgroup_disable="+name)
		}
	}
	return ok("version 2 at " + v2)
}

func oldCgroups(v1 map[string]bool, v2 string) Finding {
	found := "version 1"
	if v2 != "" {
		found = "version 1, with 2 at " + v2
	}
	if !v1["memory"] {
		return fail(found+", without memory", "boot with cgroup_enable=memory, or with version 2 only (systemd.unified_cgroup_hierarchy=1)")
	}
	for _, name := range controllers {
		if !v1[name] {
			return warn(found+", without "+name, "mount this controller too, else nothing bounds what a sandbox takes of it")
		}
	}
	return ok(found)
}

func userNamespaces(_ context.Context, c Config) Finding {
	text, err := c.read("proc/sys/user/max_user_namespaces")
	if err != nil {
		return fail("the kernel has none", "use a kernel with CONFIG_USER_NS")
	}
	if n, err := strconv.Atoi(text); err != nil || n < 64 {
		return fail("at most "+text, "sysctl -w user.max_user_namespaces=65536 (each sandbox takes a few)")
	}
	return ok("at most " + text)
}

func seccomp(_ context.Context, c Config) Finding {
	actions, err := c.read("proc/sys/kernel/seccomp/actions_avail")
	if err != nil {
		return fail("the kernel has none", "use a kernel with CONFIG_SECCOMP_FILTER")
	}
	for _, want := range []string{"trap", "errno", "kill_process"} {
		if !strings.Contains(" "+actions+" ", " "+want+" ") {
			return fail("without "+want, "use a kernel with all seccomp actions")
		}
	}
	return ok("filters")
}

// atLeast judges a number of sysctl.
func (c Config) atLeast(name string, want int64) Finding {
	text, err := c.read(filepath.Join("proc/sys", strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return fail(err.Error(), "mount /proc")
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n < want {
		return warn(fmt.Sprintf("%s is %d", name, n), fmt.Sprintf("for many sandboxes: sysctl -w %s=%d", name, want))
	}
	return ok(name + " is " + text)
}

func mapCount(_ context.Context, c Config) Finding { return c.atLeast("vm.max_map_count", 65530) }
func pidMax(_ context.Context, c Config) Finding   { return c.atLeast("kernel.pid_max", 32768) }

func openFiles(_ context.Context, c Config) Finding {
	if f := c.atLeast("fs.file-max", 1<<18); f.Level != OK {
		return f
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return warn(err.Error(), "look at ulimit -Hn")
	}
	found := fmt.Sprintf("ulimit -Hn is %d", l.Max)
	if l.Max < 1<<14 {
		return warn(found, "each sandbox and each stream takes some: ulimit -n 65536 before cube serve, or LimitNOFILE=65536 in its unit")
	}
	return ok(found)
}

// synchronised is without this flag of adjtimex(2).
const unsynchronised = 0x40

func clock(_ context.Context, c Config) Finding {
	now := time.Now()
	found := now.UTC().Format(time.RFC3339)
	if exe, err := os.Executable(); err == nil {
		if info, err := os.Stat(exe); err == nil && info.ModTime().After(now.Add(time.Minute)) {
			return fail(found+", before this program was made", "set the clock: tokens, certificates and time limits go by it")
		}
	}
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err == nil && t.Status&unsynchronised != 0 {
		return warn(found+", which nothing keeps right", "run chrony or systemd-timesyncd (where a host outside keeps it, this is no matter)")
	}
	return ok(found + ", synchronised")
}

// owner is who a file belongs to; 0 where that is not known.
func owner(info os.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return 0
}
