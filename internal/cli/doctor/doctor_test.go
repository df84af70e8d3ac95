package doctor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a good one, in files, with what is different.
func machine(t *testing.T, files map[string]string) Config {
	t.Helper()
	all := map[string]string{
		"proc/sys/kernel/osrelease": "6.1.0-13-amd64\n", "proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 12000000 kB\n",
		"proc/self/mountinfo":                   "25 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/cgroup.controllers":      "cpuset cpu io memory pids\n",
		"proc/sys/user/max_user_namespaces":     "60000\n",
		"proc/sys/kernel/seccomp/actions_avail": "kill_process kill_thread trap errno user_notif trace log allow\n",
		"proc/sys/vm/max_map_count":             "65530\n",
		"proc/sys/kernel/pid_max":               "4194304\n",
		"proc/sys/fs/file-max":                  "9223372036854775807\n",
	}
	for name, text := range files {
		all[name] = text
	}
	root := t.TempDir()
	for name, text := range all {
		if text == "" {
			continue
		}
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Config{Root: root, Arch: "amd64", StateDir: filepath.Join(root, "state"), BinDir: root}
}

// find returns the finding of one check.
func find(t *testing.T, c Config, name string) Finding {
	t.Helper()
	for _, k := range checks {
		if k.name == name {
			return k.look(t.Context(), c)
		}
	}
	t.Fatalf("no check %q", name)
	return Finding{}
}

func TestWhatAMachineLacksIsFoundAndSaid(t *testing.T) {
	good := machine(t, nil)
	for _, name := range []string{"root", "kernel", "processor", "memory", "cgroups", "user namespaces", "seccomp", "memory maps", "process ids"} {
		if f := find(t, good, name); f.Level != OK {
			t.Errorf("a good machine: got %+v", f)
		}
	}
	const v1 = "25 1 0:1 / /sys/fs/cgroup/x rw - cgroup cgroup rw,%s\n"
	for _, c := range []struct {
		check string
		files map[string]string
		level Level
		want  string
	}{
		{"kernel", map[string]string{"proc/sys/kernel/osrelease": "5.10.0"}, Fail, "5.15"},
		{"kernel", map[string]string{"proc/sys/kernel/osrelease": "5.15.0"}, OK, ""},
		{"kernel", map[string]string{"proc/sys/kernel/osrelease": "odd"}, Warn, "5.15"},
		{"memory", map[string]string{"proc/meminfo": "MemTotal: 1000000 kB\nMemAvailable: 500000 kB\n"}, Fail, "add memory"},
		{"memory", map[string]string{"proc/meminfo": "MemTotal: 2000000 kB\nMemAvailable: 1500000 kB\n"}, Warn, "one or two"},
		{"cgroups", map[string]string{"proc/self/mountinfo": "1 1 0:1 / / rw - ext4 /dev/x rw\n"}, Fail, "mount -t cgroup2"},
		{"cgroups", map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu pids"}, Fail, "cgroup_disable=memory"},
		{"cgroups", map[string]string{"proc/self/mountinfo": fmt.Sprintf(v1, "cpu,cpuacct")}, Fail, "memory"},
		{"cgroups", map[string]string{"proc/self/mountinfo": fmt.Sprintf(v1, "memory")}, Warn, "mount this controller"},
		{"cgroups", map[string]string{"proc/self/mountinfo": fmt.Sprintf(v1+v1+v1, "memory", "cpu,cpuacct", "pids")}, OK, ""},
		{"user namespaces", map[string]string{"proc/sys/user/max_user_namespaces": "0"}, Fail, "sysctl -w"},
		{"seccomp", map[string]string{"proc/sys/kernel/seccomp/actions_avail": ""}, Fail, "CONFIG_SECCOMP_FILTER"},
		{"memory maps", map[string]string{"proc/sys/vm/max_map_count": "1000"}, Warn, "sysctl -w vm.max_map_count=65530"},
	} {
		f := find(t, machine(t, c.files), c.check)
		if f.Level != c.level || !strings.Contains(f.Mend, c.want) || (c.level == OK) != (f.Mend == "") {
			t.Errorf("%s with %v: got %+v, want %s and %q", c.check, c.files, f, c.level, c.want)
		}
	}
	good.UID, good.Arch = 1000, "riscv64"
	if f := find(t, good, "root"); f.Level != Fail || !strings.Contains(f.Mend, "sudo") {
		t.Errorf("another user: got %+v", f)
	}
	good.Server.Answers = true
	if f := find(t, good, "root"); f.Level != Warn {
		t.Errorf("another user, who has a server: got %+v", f)
	}
	if f := find(t, good, "processor"); f.Level != Fail {
		t.Errorf("another processor: got %+v", f)
	}
}

func TestTheInstallationIsLookedAt(t *testing.T) {
	c := machine(t, nil)
	if f := find(t, c, "programs"); f.Level != Fail || !strings.Contains(f.Found, "cube-sentry") || !strings.Contains(f.Mend, "--bin-dir") {
		t.Errorf("no programs: got %+v", f)
	}
	for _, name := range []string{"cube-network", "cube-guest.erofs"} {
		write(t, filepath.Join(c.BinDir, name), "", 0o755)
	}
	write(t, filepath.Join(c.BinDir, "cube-sentry"), "#!/bin/sh\necho v9\n", 0o755)
	if f := find(t, c, "programs"); f.Level != OK || !strings.Contains(f.Found, "v9") {
		t.Errorf("programs: got %+v", f)
	}
	write(t, filepath.Join(c.BinDir, "cube-sentry"), "#!/bin/sh\nexit 1\n", 0o755)
	if f := find(t, c, "programs"); f.Level != Fail {
		t.Errorf("a program of another machine: got %+v", f)
	}
	if f := find(t, c, "API key"); f.Level != OK {
		t.Errorf("no key yet: got %+v", f)
	}
	if f := find(t, c, "template"); f.Level != Warn || !strings.Contains(f.Mend, "cube template build base") {
		t.Errorf("no template: got %+v", f)
	}
	write(t, filepath.Join(c.StateDir, "key"), "e2b_"+strings.Repeat("0", 40)+"\n", 0o644)
	write(t, filepath.Join(c.StateDir, "names", "base"), "tpl-"+strings.Repeat("0", 24)+"\n", 0o644)
	if f := find(t, c, "API key"); f.Level != Fail || !strings.Contains(f.Found, "chmod 600") {
		t.Errorf("a key that all may read: got %+v", f)
	}
	if f := find(t, c, "template"); f.Level != OK {
		t.Errorf("template: got %+v", f)
	}
}

func TestSandboxesCanPassToTheStateDirectory(t *testing.T) {
	c := machine(t, nil)
	if f := find(t, c, "state directory"); f.Level != OK || !strings.Contains(f.Found, "will be made") {
		t.Errorf("not there: got %+v", f)
	}
	if err := os.MkdirAll(c.StateDir, 0o711); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]string{0o700: "chmod o+x " + c.StateDir, 0o733: "chmod go-w"} {
		if err := os.Chmod(c.StateDir, mode); err != nil {
			t.Fatal(err)
		}
		if f := find(t, c, "state directory"); f.Level != Fail || !strings.Contains(f.Mend, want) {
			t.Errorf("mode %04o: got %+v, want %q", mode, f, want)
		}
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestPortsAndTheServerAreJudgedTogether(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().String()
	for _, c := range []struct {
		server  Server
		port    Level
		serving Level
		want    string
	}{
		{Server{API: taken}, Fail, Warn, "cube serve -d"},
		{Server{API: taken, Answers: true, Version: "1", Ours: "1"}, OK, OK, ""},
		{Server{API: taken, Answers: true, Version: "1", Ours: "2"}, OK, Warn, "this version"},
		{Server{API: taken, Error: "500"}, Fail, Fail, "serve.log"},
		{Server{API: "127.0.0.1:0"}, OK, Warn, "cube serve -d"},
		{Server{API: "sandboxes.example:3000", Elsewhere: true}, OK, Warn, "cube serve -d"},
	} {
		conf := machine(t, nil)
		conf.Server = c.server
		conf.Server.Data = "127.0.0.1:0"
		if f := find(t, conf, "API port"); f.Level != c.port {
			t.Errorf("%+v: got %+v, want %s", c.server, f, c.port)
		}
		if f := find(t, conf, "server"); f.Level != c.serving || !strings.Contains(f.Mend, c.want) {
			t.Errorf("%+v: got %+v, want %s and %q", c.server, f, c.serving, c.want)
		}
	}
}

func TestTheWorstLevelCounts(t *testing.T) {
	for _, c := range []struct {
		levels []Level
		want   Level
	}{{nil, OK}, {[]Level{OK, Warn, OK}, Warn}, {[]Level{Fail, Warn}, Fail}} {
		var all []Finding
		for _, l := range c.levels {
			all = append(all, Finding{Level: l})
		}
		if got := Worst(all); got != c.want {
			t.Errorf("%v: got %s", c.levels, got)
		}
	}
}
