package sentry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

const hybrid = `24 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw
25 24 0:23 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
26 24 0:24 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
27 24 0:25 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
28 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`

func TestHybridCgroupsAreLimitedByVersion1AndKilledByVersion2(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(path, []byte(hybrid), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := findHierarchies(path, "cube/x")
	if err != nil {
		t.Fatal(err)
	}
	got := (&group{h: h, life: "l"}).dirs()
	want := []string{
		"/sys/fs/cgroup/unified/cube/x/l", "/sys/fs/cgroup/memory/cube/x/l",
		"/sys/fs/cgroup/cpu,cpuacct/cube/x/l", "/sys/fs/cgroup/pids/cube/x/l",
	}
	if h.limited || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v (limited %v), want %v", got, h.limited, want)
	}
}

func TestVersion2AloneDoesBoth(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mountinfo")
	root := filepath.Join(dir, "cg")
	if err := os.WriteFile(path, []byte("30 1 0:1 / "+root+" rw - cgroup2 cgroup2 rw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A plain directory stands in for the kernel's: what is written can be read.
	for _, d := range []string{root, filepath.Join(root, "cube"), filepath.Join(root, "cube/x")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := findHierarchies(path, "cube/x")
	if err != nil {
		t.Fatal(err)
	}
	if got := (&group{h: h, life: "l"}).dirs(); !h.limited || len(got) != 1 || got[0] != filepath.Join(root, "cube/x/l") {
		t.Errorf("got %v (limited %v)", got, h.limited)
	}
}

func TestWithoutAMemoryControllerNothingStarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mountinfo")
	for _, mounts := range []string{"", "27 24 0:25 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"} {
		if err := os.WriteFile(path, []byte(mounts), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := findHierarchies(path, "n"); err == nil {
			t.Errorf("mounts %q: got no error", mounts)
		}
	}
}

func goodBoot() keeperapi.Boot {
	return keeperapi.Boot{
		Life: strings.Repeat("a", 32), Rootfs: strings.Repeat("b", 64), Agent: strings.Repeat("c", 64), Limits: cube.DefaultLimits(),
	}
}

func TestASpecDependsOnContentAndLimitsAlone(t *testing.T) {
	a, b := goodBoot(), goodBoot()
	b.Life = strings.Repeat("d", 32)
	b.Labels.Sandbox = "x"
	ja, _ := json.Marshal(guestSpec(a))
	jb, _ := json.Marshal(guestSpec(b))
	if string(ja) != string(jb) {
		t.Error("two lives of one image have different specs: it could not be restored")
	}
	b.Rootfs = strings.Repeat("e", 64)
	if jc, _ := json.Marshal(guestSpec(b)); string(jc) == string(ja) {
		t.Error("another root file system has the same spec: a wrong one would be restored")
	}
}

// setupDigests has the digest of everything that we ask of gVisor, by setup. A
// new one gets a line of its own; those that were released never change.
var setupDigests = map[string]string{
	"s1": "e7675d5c5d8ae43b9da02b1f63fe49d5ded96d83d453bb659bc8eb64b137cf8a",
}

func TestWhatIsAskedOfGVisorHasANumber(t *testing.T) {
	conf, err := sentryConfig("/run/r", "/run/l")
	if err != nil {
		t.Fatal(err)
	}
	flags := slices.Sorted(slices.Values(conf.ToFlags()))
	h := sha256.New()
	for _, v := range []any{guestSpec(goodBoot()), mountConfs(goodBoot()), linkArgs(nil, true), flags} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != setupDigests[setup] {
		t.Errorf("the digest of setup %s is %s, not %q: images made before cannot be restored; raise setup in sentry.go and note the digest here", setup, got, setupDigests[setup])
	}
}

func TestBootIsCheckedBeforeAnythingIsMade(t *testing.T) {
	for name, spoil := range map[string]func(*keeperapi.Boot){
		"life":   func(b *keeperapi.Boot) { b.Life = "../../../etc" },
		"rootfs": func(b *keeperapi.Boot) { b.Rootfs = "x" },
		"memory": func(b *keeperapi.Boot) { b.Limits.MemoryMiB = 1 },
		"cpus":   func(b *keeperapi.Boot) { b.Limits.CPUs = 0 },
		"pids":   func(b *keeperapi.Boot) { b.Limits.Pids = 1 },
		"disk":   func(b *keeperapi.Boot) { b.Limits.DiskMiB = -1 },
	} {
		b := goodBoot()
		spoil(&b)
		if err := checkBoot(b, 3); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	if err := checkBoot(goodBoot(), 2); err == nil {
		t.Error("two files: got no error")
	}
	if err := checkBoot(goodBoot(), 3); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

func TestOnlyTheFirstStageGoesThroughTheGate(t *testing.T) {
	if !firstStage([]string{"runsc-sandbox", "--root=/r", "boot", "--setup-root", "id"}) {
		t.Error("the first stage is not seen")
	}
	if firstStage([]string{"/proc/self/exe", "--root=/r", "boot", "--setup-root=false", "id"}) {
		t.Error("the second stage would wait for ever")
	}
	if got := flagValue([]string{"x", "--root=/run/c/s"}, "root"); got != "/run/c/s" {
		t.Errorf("got root %q", got)
	}
}

func TestTheGateLetsNoStrangerThrough(t *testing.T) {
	dir := t.TempDir()
	placed := false
	g, err := openGate(dir, func(int, string) error { placed = true; return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	c, err := net.Dial("unix", filepath.Join(dir, gateName))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	// This process is not a child of itself.
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || placed {
		t.Errorf("got %d bytes, %v, placed %v; want the connection closed", n, err, placed)
	}
	if err := passGate(t.TempDir()); err != nil {
		t.Errorf("where there is no gate: %v", err)
	}
}

func TestLastWordsAreFoundAndBounded(t *testing.T) {
	dir := t.TempDir()
	if got := lastWords(dir); got != "" {
		t.Errorf("without files: got %q", got)
	}
	os.WriteFile(filepath.Join(dir, logFile), []byte("I x\nW y FATAL ERROR: cannot load\n"), 0o600)
	if got := lastWords(dir); !strings.Contains(got, "cannot load") {
		t.Errorf("log: got %q", got)
	}
	os.WriteFile(filepath.Join(dir, panicFile), []byte("noise\npanic: "+strings.Repeat("\xff", 5000)+"\ngoroutine 1\n"), 0o600)
	if got := lastWords(dir); !strings.HasPrefix(got, "panic:") || len(got) > 400 {
		t.Errorf("panic: got %d bytes %.20q", len(got), got)
	}
}

func TestARecordReadsBack(t *testing.T) {
	dir := t.TempDir()
	r := record{Life: keeperapi.Life{Life: filepath.Base(dir), PID: 7, State: keeperapi.StateRunning}, Start: 9, Control: "/c"}
	if err := writeRecord(dir, r); err != nil {
		t.Fatal(err)
	}
	k := &Keeper{}
	l, err := k.readLife(dir)
	if err != nil || !reflect.DeepEqual(l.rec, r) {
		t.Errorf("got %+v, %v; want %+v", l.rec, err, r)
	}
	if fi, err := os.Stat(filepath.Join(dir, recordFile)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("tokens are in it, so only root may read it: %v, %v", fi.Mode(), err)
	}
}

func TestAProcessIsToldFromALaterOneWithItsPID(t *testing.T) {
	st, err := readStat(os.Getpid())
	if err != nil || st.ppid != os.Getppid() || st.start == 0 {
		t.Errorf("got %+v, %v", st, err)
	}
}

func TestASentryKeepsOnlyWhatItWasGiven(t *testing.T) {
	args := []string{"runsc-sandbox", "--root=/r", "--log-fd=3", "boot", "--io-fds=4", "--io-fds=5", "--start-sync-fd=6", "--total-memory=99", "id"}
	if got := lastDonated(args); got != 6 {
		t.Errorf("the last donated descriptor is %d, want 6", got)
	}
}

func TestABinaryIsWhatItsVersionSays(t *testing.T) {
	good, bad := "20260905035102-160fafc42237-stock-amd64", "20260905035102-160fafc42237-0123456789ab-amd64"
	if Patched {
		good, bad = bad, good
	}
	if err := checkBuild(good); err != nil {
		t.Errorf("%s: %v", good, err)
	}
	for _, v := range []string{bad, "VERSION_MISSING"} {
		if err := checkBuild(v); err == nil || !strings.Contains(err.Error(), "build it with make") {
			t.Errorf("%s: got %v, want it refused", v, err)
		}
	}
}
