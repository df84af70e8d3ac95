package sentry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// containerManager stands in for gVisor's: the name is part of its protocol. It
// counts stops as gVisor does.
type containerManager struct {
	mu    sync.Mutex
	stops int
	deaf  chan struct{} // while open, Pause does not answer
}

func (c *containerManager) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stops
}

func (c *containerManager) Pause(_, _ *struct{}) error {
	if c.deaf != nil {
		<-c.deaf
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stops++
	return nil
}

func (c *containerManager) Resume(_, _ *struct{}) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stops == 0 {
		return errors.New("a real sentry would have ended")
	}
	c.stops--
	return nil
}

// fakeLife has a sentry of which only the control socket is there.
func fakeLife(t *testing.T, state keeperapi.State, c *containerManager) *life {
	t.Helper()
	k := &Keeper{conf: Config{RunDir: t.TempDir()}, cgroups: &hierarchies{v1: map[string]string{}}}
	l := k.newLife(strings.Repeat("a", 32))
	t.Cleanup(l.cancel)
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(k.conf.RunDir, "c")
	sock, err := unet.BindAndListen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	s := urpc.NewServer()
	s.Register(c)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := sock.Accept()
			if err != nil {
				return
			}
			s.StartHandling(conn)
		}
	})
	t.Cleanup(func() { sock.Close(); wg.Wait(); s.Stop(0) })
	l.rec = record{Life: keeperapi.Life{Life: l.id, PID: 1, State: state, Limits: cube.DefaultLimits()}, Control: path}
	l.nic = os.Stdin
	return l
}

func TestAKeeperThatDiedInAPauseOrResumeLeavesALifeThatCanBeResumed(t *testing.T) {
	for _, c := range []struct {
		state keeperapi.State // on record
		stops int             // as the sentry counts them
	}{
		{keeperapi.StateRunning, 0}, {keeperapi.StateRunning, 1}, {keeperapi.StatePaused, 1}, {keeperapi.StatePaused, 0},
	} {
		m := &containerManager{stops: c.stops}
		l := fakeLife(t, c.state, m)
		l.rec.Turning = true
		if err := l.settle(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		if v := l.view(); v.State != keeperapi.StatePaused || !v.Detached || m.count() != c.stops+1 {
			t.Errorf("%+v: got state %s, detached %v, %d stops", c, v.State, v.Detached, m.count())
		}
		if err := l.turn(keeperapi.StatePaused, keeperapi.StateRunning, boot.ContMgrResume); err != nil {
			t.Errorf("%+v: resume: %v", c, err)
		}
		if err := l.turn(keeperapi.StatePaused, keeperapi.StateRunning, boot.ContMgrResume); err != nil {
			t.Errorf("%+v: resume of what runs: %v", c, err)
		}
	}
}

func TestATurnIsOnDiskBeforeItHappens(t *testing.T) {
	m := &containerManager{deaf: make(chan struct{})}
	l := fakeLife(t, keeperapi.StateRunning, m)
	done := make(chan error, 1)
	go func() { done <- l.turn(keeperapi.StateRunning, keeperapi.StatePaused, boot.ContMgrPause) }()
	k := &Keeper{}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if r, err := k.readLife(l.dir); err == nil && r.rec.Turning && r.rec.State == keeperapi.StateRunning {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the record does not say that the life is being paused")
		}
	}
	close(m.deaf)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if r, err := k.readLife(l.dir); err != nil || r.rec.Turning || r.rec.State != keeperapi.StatePaused || l.view().Detached {
		t.Errorf("afterwards: got %+v, %v", r.rec, err)
	}
}

func TestASentryThatDoesNotAnswerHoldsNobody(t *testing.T) {
	m := &containerManager{deaf: make(chan struct{})}
	l := fakeLife(t, keeperapi.StateRunning, m)
	defer close(m.deaf)
	if err := l.callWithin(50*time.Millisecond, boot.ContMgrPause, nil, nil); !errors.Is(err, errNoAnswer) {
		t.Errorf("got %v", err)
	}
	l.note(func(r *record) { r.State, r.Death = keeperapi.StateDead, &cube.Death{Reason: cube.DeathKilled} })
	l.cancel()
	close(l.gone)
	if err := l.callWithin(0, boot.ContMgrPause, nil, nil); fdrpc.Code(err) != keeperapi.CodeDead {
		t.Errorf("without a bound, of a life that was killed: got %v", err)
	}
}

func TestAChangeThatCannotBeWrittenIsNotMade(t *testing.T) {
	l := fakeLife(t, keeperapi.StateRunning, &containerManager{})
	l.dir = filepath.Join(l.dir, "gone")
	if err := l.update(func(r *record) { r.State = keeperapi.StatePaused }); err == nil || l.view().State != keeperapi.StateRunning {
		t.Errorf("update: got %v and state %s", err, l.view().State)
	}
	if err := l.note(func(r *record) { r.State = keeperapi.StateDead }); err == nil || l.view().State != keeperapi.StateDead {
		t.Errorf("note: got %v and state %s", err, l.view().State)
	}
}

func TestOneKeeperWorksInADirectory(t *testing.T) {
	dir := t.TempDir()
	f, err := lockRunDir(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, lockName)); string(b) != fmt.Sprintf("%d\n", os.Getpid()) {
		t.Errorf("got %q in it", b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := lockRunDir(ctx, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second one: got %v", err)
	}
	f.Close()
}

func TestARunDirectoryThatOthersCanWriteToIsRefused(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o770); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{open, "relative"} {
		if err := makeRunDir(dir); err == nil {
			t.Errorf("%s: got no error", dir)
		}
	}
	if err := makeRunDir(filepath.Join(t.TempDir(), "a/b")); err != nil {
		t.Error(err)
	}
}

func TestPagesOfLivesFitAMessageHoweverLargeTheirIdentity(t *testing.T) {
	k := &Keeper{conf: Config{RunDir: t.TempDir()}, lives: map[string]*life{}}
	who := cube.Identity{Env: map[string]string{"X": strings.Repeat("x", maxIdentity-100)}}
	if err := checkIdentity("l", who); err != nil {
		t.Fatal(err)
	}
	who2 := cube.Identity{Env: map[string]string{"X": strings.Repeat("x", maxIdentity)}}
	if err := checkIdentity("l", who2); fdrpc.Code(err) != keeperapi.CodeInvalid || !strings.Contains(err.Error(), "32768") {
		t.Errorf("too large: got %v", err)
	}
	for i := range 7 {
		l := k.newLife(fmt.Sprintf("%032x", i))
		l.rec = record{Life: keeperapi.Life{Life: l.id, Labels: keeperapi.Labels{Identity: who}}}
		k.lives[l.id] = l
	}
	seen, after := 0, ""
	for more := true; more; {
		p, err := pageOf(k.all(), after)
		if err != nil || len(p.Lives) == 0 || len(p.Lives) > 2 {
			t.Fatalf("got %d lives, %v", len(p.Lives), err)
		}
		seen, after, more = seen+len(p.Lives), p.Lives[len(p.Lives)-1].Life, p.More
	}
	if seen != 7 {
		t.Errorf("saw %d lives of 7", seen)
	}
}

func TestAFileWithoutANameIsFoundAgain(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "disk")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(os.Remove(f.Name()), f.Truncate(1<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	got, err := findFile(os.Getpid(), idOf(f))
	if err != nil || allocated(got) == 0 || allocated(got) != allocated(f) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := findFile(os.Getpid(), fileID{1, 1}); err == nil {
		t.Error("another file was found")
	}
}

func TestAPidfdIsOfTheProcessThatWasMeant(t *testing.T) {
	st, err := readStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	f, _, err := openProcess(os.Getpid(), st.start)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := signalProcess(f, 0); err == nil {
		t.Error("a signal was sent by a closed pidfd")
	}
	if _, _, err := openProcess(os.Getpid(), st.start+1); !errors.Is(err, errEnded) {
		t.Errorf("a later process with its pid: got %v", err)
	}
}

func TestNoSentrySaysMoreThanItCanHave(t *testing.T) {
	l := fakeLife(t, keeperapi.StateRunning, &containerManager{})
	u := l.measure(control.MemoryUsage{Anonymous: 1 << 63, PageCache: ^uint64(0)}, shared{})
	if most := hostLimit(cube.DefaultLimits()); u.GuestMemory != most || u.CommittedBytes != most {
		t.Errorf("got %+v, want at most %d", u, most)
	}
}

func TestErrorsOfImagesSayWhoseFaultItIs(t *testing.T) {
	l := fakeLife(t, keeperapi.StateRunning, &containerManager{})
	full := urpc.RemoteError{Message: "write pages: no space left on device"}
	if err := saveError(full); fdrpc.Code(err) != keeperapi.CodeNoSpace {
		t.Errorf("full disk: got %v", err)
	}
	refused := urpc.RemoteError{Message: `save refused: process 7 ("vpn") has "/dev/net/tun" open as file descriptor 3: why`}
	if err := saveError(refused); fdrpc.Code(err) != keeperapi.CodeState || !strings.Contains(err.Error(), `process 7 ("vpn") has "/dev/net/tun"`) {
		t.Errorf("a file that cannot be saved: got %v", err)
	}
	fell := urpc.RemoteError{Message: "encoding error: no such thing:\ngoroutine 120 [running]:\nstate.go:309"}
	if err := saveError(fell); err.Error() != "save: encoding error: no such thing" {
		t.Errorf("a stack: got %v", err)
	}
	if err := imageError(l, urpc.RemoteError{Message: "bad magic"}); fdrpc.Code(err) != keeperapi.CodeImage {
		t.Errorf("refused: got %v", err)
	}
	for reason, want := range map[cube.DeathReason]string{
		cube.DeathCrash: keeperapi.CodeImage, cube.DeathExit: keeperapi.CodeImage,
		cube.DeathOOM: keeperapi.CodeDead, cube.DeathKilled: keeperapi.CodeDead,
	} {
		l.note(func(r *record) { r.State, r.Death = keeperapi.StateDead, &cube.Death{Reason: reason} })
		if err := imageError(l, deadError(l.record())); fdrpc.Code(err) != want {
			t.Errorf("%s: got %v, want code %s", reason, err, want)
		}
	}
}

func TestAnUnfinishedLifeLeavesNoSocket(t *testing.T) {
	k := &Keeper{conf: Config{RunDir: t.TempDir()}, cgroups: &hierarchies{v2: t.TempDir(), limited: true}}
	id := strings.Repeat("b", 32)
	for _, d := range []string{k.sentryDir(), filepath.Join(k.livesDir(), id)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s, err := net.Listen("unix", k.controlSocket(id))
	if err != nil {
		t.Fatal(err)
	}
	s.(*net.UnixListener).SetUnlinkOnClose(false)
	s.Close()
	if err := k.scrap(id); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{k.controlSocket(id), filepath.Join(k.livesDir(), id)} {
		if _, err := os.Lstat(p); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left", p)
		}
	}
}
