package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
	"cubesandbox/internal/local"
)

// lifeOf returns the keeper's view of a sandbox.
func lifeOf(t *testing.T, id cube.SandboxID) keeperapi.Life {
	t.Helper()
	life, err := l.Life(t.Context(), id)
	noError(t, err, "life")
	return life
}

// groups returns the directories of a life's cgroup, by what /proc calls their
// hierarchy ("" is version 2).
func groups(t *testing.T, life keeperapi.Life) map[string]string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", life.PID))
	noError(t, err, "cgroup of the sentry")
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || filepath.Base(f[2]) != life.Life {
			continue
		}
		for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/" + f[1]} {
			if dir := root + f[2]; isDir(dir) {
				out[f[1]] = dir
			}
		}
	}
	return out
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// limit reads a limit that is in version 1 or version 2.
func limit(t *testing.T, gs map[string]string, controller, v1, v2 string) int64 {
	t.Helper()
	path := filepath.Join(gs[""], v2)
	if dir, ok := gs[controller]; ok {
		path = filepath.Join(dir, v1)
	}
	b, err := os.ReadFile(path)
	noError(t, err, "limit")
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	noError(t, err, path)
	return n
}

func TestTheSentryIsNobodyInItsCgroupAndHasNoGofer(t *testing.T) {
	l.Guard(t)
	life := lifeOf(t, witness(t))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", life.PID))
	noError(t, err, "status of the sentry")
	if !strings.Contains(string(status), "Uid:\t65534\t65534\t65534\t65534") {
		t.Errorf("the sentry is not nobody: %s", status)
	}
	gs := groups(t, life)
	_, memory := gs["memory"]
	_, unified := gs[""]
	if !unified || !memory && limit(t, gs, "memory", "", "memory.max") == 0 {
		t.Errorf("the sentry is in %v; want its life's cgroup in every hierarchy", gs)
	}
	keeper, err := l.Keeper(t.Context())
	noError(t, err, "keeper")
	for _, pid := range childrenOf(t, keeper) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(b), "gofer\x00") {
			t.Errorf("process %d is a gofer: %q", pid, b)
		}
	}
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	var out []int
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	noError(t, err, "children")
	for _, task := range tasks {
		b, _ := os.ReadFile(task)
		for _, f := range strings.Fields(string(b)) {
			n, err := strconv.Atoi(f)
			noError(t, err, "children")
			out = append(out, n)
		}
	}
	return out
}

func TestTheHostsLimitsAreAboveTheGuests(t *testing.T) {
	l.Guard(t)
	life := lifeOf(t, witness(t))
	gs := groups(t, life)
	guest := life.Limits.MemoryMiB << 20
	if got := limit(t, gs, "memory", "memory.limit_in_bytes", "memory.max"); got < guest+64<<20 || got > 2*guest+64<<20 {
		t.Errorf("memory: the host allows %d MiB for a guest of %d MiB; want 64 MiB more, and room for its processes", got>>20, guest>>20)
	}
	if got := limit(t, gs, "pids", "pids.max", "pids.max"); got < 10*life.Limits.Pids {
		t.Errorf("pids: the host allows %d for a guest's %d; want ten times that", got, life.Limits.Pids)
	}
}

func TestTheHostsMemoryLimitEndsThatSandboxAlone(t *testing.T) {
	l.Guard(t)
	other, id := witness(t), witness(t)
	gs := groups(t, lifeOf(t, id))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	events := l.Engine.Events(ctx)
	u, err := l.Engine.Usage(ctx, id)
	noError(t, err, "usage")
	// What a guest may not reach before its agent acts is brought down to it.
	lowerLimit(t, gs, u.HostMemory+48<<20)
	// The command ends with its sandbox.
	l.Run(ctx, id, "/usr/bin/python3", "-c", "x = bytearray(200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1")
	if ev := event(t, events, cube.EventDied, id); ev.Death == nil || ev.Death.Reason != cube.DeathOOM {
		t.Errorf("got %+v, want a death by oom", ev)
	}
	l.Check(t, other)
}

// lowerLimit sets the host's memory limit of a life, in bytes.
func lowerLimit(t *testing.T, gs map[string]string, bytes int64) {
	t.Helper()
	names := []string{filepath.Join(gs[""], "memory.max")}
	if dir, ok := gs["memory"]; ok {
		names = []string{filepath.Join(dir, "memory.limit_in_bytes"), filepath.Join(dir, "memory.memsw.limit_in_bytes")}
	}
	for _, name := range names {
		err := os.WriteFile(name, []byte(strconv.FormatInt(bytes, 10)), 0)
		if errors.Is(err, os.ErrNotExist) && strings.Contains(name, "memsw") {
			continue // a kernel that does not count swap
		}
		noError(t, err, "lower the host's limit")
	}
}

func TestKillEndsEvenWhatIsStopped(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	life := lifeOf(t, id)
	gs := groups(t, life)
	b, err := os.ReadFile(filepath.Join(gs[""], "cgroup.procs"))
	noError(t, err, "processes of the life")
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(f)
		noError(t, err, "cgroup.procs")
		pids = append(pids, pid)
	}
	if len(pids) < 2 {
		t.Fatalf("the cgroup has %v; want the sentry and its stubs", pids)
	}
	noError(t, syscall.Kill(life.PID, syscall.SIGSTOP), "stop the sentry")
	noError(t, l.Engine.Kill(t.Context(), id), "kill")
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is there after Kill: %v", pid, err)
		}
	}
	for _, dir := range gs {
		if isDir(dir) {
			t.Errorf("cgroup %s is there after Kill", dir)
		}
	}
}

func TestFilesAreNotTheSandboxsMemory(t *testing.T) {
	l.Guard(t)
	s, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Base})
	noError(t, err, "create")
	size := s.Limits.MemoryMiB + 128 // more than all its memory
	for _, dir := range []string{"/tmp", "/home/user"} {
		sh(t, s.ID, fmt.Sprintf("dd if=/dev/zero of=%s/f bs=1M count=%d status=none", dir, size/2))
	}
	u, err := l.Engine.Usage(t.Context(), s.ID)
	noError(t, err, "usage")
	if u.GuestMemory > 100<<20 || u.GuestFiles < (size-2)<<20 {
		t.Errorf("after writing %d MiB: memory %d MiB, files %d MiB; want them in files", size, u.GuestMemory>>20, u.GuestFiles>>20)
	}
	if got := sh(t, s.ID, "stat -c %s /tmp/f /home/user/f | paste -sd+ | python3 -c 'print(eval(input()))'"); got != strconv.FormatInt(size/2*2<<20, 10) {
		t.Errorf("the files have %s bytes", got)
	}
}

func TestUsersHaveDockersCapabilitiesAndPtraceAlone(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	// Docker's default set and SYS_PTRACE (19); without NET_RAW (13), for gVisor
	// takes that away where raw sockets are off.
	const want = "00000000a80c05fb"
	for _, set := range []string{"CapBnd", "CapPrm", "CapEff"} {
		if got := sh(t, id, "sed -n 's/^"+set+":\t//p' /proc/self/status"); got != want {
			t.Errorf("%s of root is %s, want %s", set, got, want)
		}
	}
}

func TestEverySandboxIsARestoreOfItsTemplate(t *testing.T) {
	l.Guard(t)
	s, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Base})
	noError(t, err, "create")
	im, err := l.Images.Image(l.Base)
	noError(t, err, "image")
	// Its kernel has been running since before the template was saved.
	up, err := strconv.ParseFloat(sh(t, s.ID, "cut -d' ' -f1 /proc/uptime"), 64)
	noError(t, err, "uptime")
	if age := time.Since(im.Created).Seconds(); s.Image != l.Base || up < age {
		t.Errorf("image %q, up for %.1f s; its template is %s and %.1f s old", s.Image, up, l.Base, age)
	}
}

func TestABootedSentryIsTakenFromThePool(t *testing.T) {
	l.Guard(t)
	// The shape of sentries to keep is known by the first that is asked for.
	first, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Base})
	noError(t, err, "create")
	noError(t, l.Engine.SetPools(t.Context(), cube.Pools{Booted: 1}), "set pools")
	defer func() {
		noError(t, l.Engine.SetPools(context.Background(), cube.Pools{}), "empty the pools")
		noError(t, l.Engine.PoolsReady(context.Background()), "empty the pools")
	}()
	noError(t, l.Engine.PoolsReady(t.Context()), "pools")
	h, err := local.LookAt(t.Context(), l.Options().RunDir)
	noError(t, err, "keeper")
	ready := map[string]bool{}
	for _, life := range h.Lives {
		if life.Labels.Role == keeperapi.RolePool && life.State == keeperapi.StateBooted {
			ready[life.Life] = true
		}
	}
	s, err := l.Engine.Rollback(t.Context(), first.ID, l.Base)
	noError(t, err, "rollback")
	if life := lifeOf(t, s.ID); !ready[life.Life] {
		t.Errorf("life %s was not among the booted %v", life.Life, ready)
	}
}

func TestRollbackRunsOneLifeAtATime(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	img := save(t, id)
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	looks := 0
	go func() {
		watched <- func() error {
			for ctx.Err() == nil {
				h, err := local.LookAt(context.Background(), l.Options().RunDir)
				if err != nil {
					return err
				}
				looks++
				running := 0
				for _, life := range h.Lives {
					if life.Labels.Sandbox == id && life.State == keeperapi.StateRunning {
						running++
					}
				}
				if running > 1 {
					return fmt.Errorf("%d lives of one sandbox run at a time", running)
				}
			}
			return nil
		}()
	}()
	for range 5 {
		_, err := l.Engine.Rollback(t.Context(), id, img)
		noError(t, err, "rollback")
	}
	cancel()
	noError(t, <-watched, "watch")
	if looks < 15 { // three a rollback
		t.Errorf("looked %d times only", looks)
	}
	runs(t, id, 6)
}

func TestASaveThatFailsInTheSentryEndsNothing(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	before := l.Check(t, id)
	c := connect(t, id)
	dir := t.TempDir()
	noError(t, syscall.Mount("tiny", dir, "tmpfs", 0, "size=256k"), "mount")
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	var files []*os.File
	for _, name := range []string{"kernel", "pages-meta", "pages"} {
		f, err := os.Create(filepath.Join(dir, name))
		noError(t, err, "create")
		defer f.Close()
		files = append(files, f)
	}
	keeper, err := fdrpc.Dial(t.Context(), filepath.Join(l.Options().RunDir, "keeper.sock"), keeperapi.Protocol, keeperapi.Version, nil)
	noError(t, err, "keeper")
	defer keeper.Close()
	// Whatever it says: gVisor may report success.
	keeper.Call(t.Context(), keeperapi.MethodSave, keeperapi.Ref{Life: lifeOf(t, id).Life}, files, nil)
	fi, err := files[2].Stat()
	noError(t, err, "pages")
	im, err := l.Images.Image(l.Witness)
	noError(t, err, "image")
	if st := fi.Sys().(*syscall.Stat_t); st.Blocks*512 >= im.PagesBytes {
		t.Fatalf("%d bytes were saved: the save did not fail", st.Blocks*512)
	}
	answersAsBefore(t, id, before, c)
}

func TestNoSentryHoldsADescriptorOfAnother(t *testing.T) {
	l.Guard(t)
	ids := clone(t, witness(t), 8) // booted at the same time
	owner := map[string]cube.SandboxID{}
	for _, id := range ids {
		life := lifeOf(t, id)
		dir := fmt.Sprintf("/proc/%d/fd", life.PID)
		fds, err := os.ReadDir(dir)
		noError(t, err, "descriptors of the sentry")
		sockets := 0
		for _, fd := range fds {
			target, err := os.Readlink(filepath.Join(dir, fd.Name()))
			if err != nil || !strings.HasPrefix(target, "socket:") {
				continue
			}
			sockets++
			if other, ok := owner[target]; ok && other != id {
				t.Errorf("%s is open in the sentries of %s and %s", target, other, id)
			}
			owner[target] = id
		}
		if sockets < 2 {
			t.Errorf("the sentry of %s has %d sockets; want its control socket and its NIC", id, sockets)
		}
	}
}
