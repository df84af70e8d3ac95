package template

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cubesandbox/internal/progress"
)

// baseRootfs makes the root file system of base, or finds it where make has put it.
func baseRootfs(t *testing.T) Rootfs {
	t.Helper()
	def, err := Load("../templates/base")
	if err != nil {
		t.Fatal(err)
	}
	cacheDir := os.Getenv("CUBE_CACHE")
	if cacheDir == "" {
		cacheDir = "/var/cache/cube"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	r, err := BuildRootfs(ctx, def, cacheDir, false, progress.Plain(os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBaseIsReusedTheSecondTime(t *testing.T) {
	first := baseRootfs(t)
	began := time.Now()
	second := baseRootfs(t)
	if took := time.Since(began); took > 300*time.Millisecond || !second.Cached {
		t.Errorf("took %v, cached %t", took, second.Cached)
	}
	if first.Digest != second.Digest || first.Path != second.Path {
		t.Errorf("got %+v, then %+v", first, second)
	}
	if digest, err := digestFile(second.Path); err != nil || digest != second.Digest {
		t.Errorf("the image has digest %s, %v, its record says %s", digest, err, second.Digest)
	}
	if second.Bytes > 260e6 || second.Packages > 150 {
		t.Errorf("base has %d bytes and %d packages: what made it grow?", second.Bytes, second.Packages)
	}
}

func TestBaseHoldsNothingOfThisMachine(t *testing.T) {
	root, image := filepath.Join(t.TempDir(), "root"), baseRootfs(t).Path
	extract(t, image, root)
	for name, want := range map[string]string{
		"etc/hostname": "sandbox\n",
		"etc/hosts":    "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n",
	} {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	resolv, err := os.ReadFile(filepath.Join(root, "etc/resolv.conf"))
	if err != nil || !strings.HasPrefix(string(resolv), "nameserver 169.254.0.22\n") {
		t.Errorf("etc/resolv.conf: got %q, %v", resolv, err)
	}
	if to, err := os.Readlink(filepath.Join(root, "etc/machine-id")); err != nil || to != machineIDFile {
		t.Errorf("etc/machine-id leads to %q (%v), want %s, where every sandbox has its own", to, err, machineIDFile)
	}
	for _, gone := range []string{buildAptOptions, "usr/share/man/man1", "usr/share/locale/de", "etc/shadow-"} {
		if _, err := os.Lstat(filepath.Join(root, gone)); err == nil {
			t.Errorf("%s is there", gone)
		}
	}
	for name, want := range map[string]uint16{
		"/usr/bin/sudo":          0o4755,
		"/tmp":                   0o1777,
		"/boot":                  0o755, // the agent is mounted there
		"/etc/sudoers.d/sandbox": 0o440,
		"/home/user":             0o755,
		"/tmp/.on-disk":          0o644, // tells gVisor to leave /tmp on the disk
	} {
		if got := modeIn(t, image, name); got != want {
			t.Errorf("%s: got mode %o, want %o", name, got, want)
		}
	}
	if err := staleBytecode(root); err != nil {
		t.Error(err)
	}
}

// modeIn reads the permissions of a file in an EROFS image with all twelve bits;
// the tools show nine.
func modeIn(t *testing.T, image, name string) uint16 {
	t.Helper()
	var nid int64
	err := contained(context.Background(), nil, func(line string) {
		if number, ok := strings.CutPrefix(line, "NID: "); ok {
			if _, err := fmt.Sscan(number, &nid); err != nil {
				t.Errorf("dump.erofs says %q: %v", line, err)
			}
		}
	}, "dump.erofs", "--path="+name, image)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var super [128]byte
	var inode [8]byte
	if _, err := f.ReadAt(super[:], 1024); err != nil {
		t.Fatal(err)
	}
	// Inodes are 32 bytes apart from the first block of metadata on.
	at := int64(binary.LittleEndian.Uint32(super[40:]))*4096 + nid*32
	if _, err := f.ReadAt(inode[:], at); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint16(inode[4:]) & 0o7777
}

func TestChecksSeeAReadOnlySystemAndAFailureNamesItsLine(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	extract(t, baseRootfs(t).Path, root)
	def, err := Load("../templates/base")
	if err != nil {
		t.Fatal(err)
	}
	def.Checks = []string{"! touch /etc/x && ! sudo -n touch /etc/x && touch /tmp/x /run/../tmp/y"}
	if err := runChecks(context.Background(), def, root, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(root, "tmp/x")); err == nil {
		t.Error("a check has written into the file system")
	}
	def.Checks = []string{"echo it is missing; false"}
	err = runChecks(context.Background(), def, root, nil)
	if err == nil || !strings.Contains(err.Error(), "template.toml:") || !strings.Contains(err.Error(), "it is missing") {
		t.Errorf("got %v, want the line of checks and what was said", err)
	}
	// A login shell that starts a process is found out.
	write(t, filepath.Join(root, "etc/profile"), "x=$(id -u)\n", 0o644)
	def.Checks = []string{`bash -l -c 'read -r _ _ _ _ newest </proc/loadavg; test "$newest" = $$'`}
	if err := runChecks(context.Background(), def, root, nil); err == nil {
		t.Error("a profile that forks has passed")
	}
}
