package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

const (
	keeperSocket = "keeper.sock"
	// keeperLock is locked by a keeper for as long as it runs.
	keeperLock = "keeper.pid"
	// networkRecord names the cube-network that a keeper has started.
	networkRecord = "network.json"
	// versionFile says in a keeper's directory which version was started there: the
	// next one takes up its lives.
	versionFile = "version"
	// keepersDir has a directory for each keeper that is not in the run directory itself.
	keepersDir = "k"
	// longestRunDir leaves room for the name of a control socket of a sentry below
	// such a directory: a path of a unix socket has 107 bytes at most.
	longestRunDir = 107 - len("/"+keepersDir+"/12345678/s/runsc-.sock") - 32
)

// place is where a keeper works: its directory, with sockets and records, and its
// node of the cgroup tree.
type place struct {
	dir     string
	cgroup  string
	engines engines
	version string // of the keeper that is to be started here
}

// mainPlace is the run directory itself.
func mainPlace(runDir string, en engines, version string) place {
	return place{dir: runDir, cgroup: "cube/" + shortHash(runDir), engines: en, version: version}
}

// otherPlace is that of a version whose keeper cannot be in the run directory,
// because there is one of another version.
func otherPlace(runDir string, en engines, version string) place {
	return placeNamed(runDir, en, shortHash(version), version)
}

// placeNamed is that of a directory which was found. Its cgroups are below the
// run directory's.
func placeNamed(runDir string, en engines, name, version string) place {
	return place{
		dir:    filepath.Join(runDir, keepersDir, name),
		cgroup: mainPlace(runDir, en, "").cgroup + "/k-" + name, engines: en, version: version,
	}
}

// shortHash names something within a path.
func shortHash(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:4])
}

// dial connects to the keeper that listens here. One that has been stopped takes
// connections all the same, and says nothing.
func (p place) dial(ctx context.Context, note func(string, json.RawMessage)) (*fdrpc.Client, error) {
	late := notWithin(answerTime)
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, late)
	defer cancel()
	c, err := fdrpc.Dial(ctx, filepath.Join(p.dir, keeperSocket), keeperapi.Protocol, keeperapi.Version, note)
	if err != nil && context.Cause(ctx) == late {
		err = fmt.Errorf("process %d %w", p.pid(), late)
	}
	return c, err
}

// pid is the process of the keeper that runs or ran here last; 0 where that is not known.
func (p place) pid() int {
	b, _ := os.ReadFile(filepath.Join(p.dir, keeperLock))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid
}

// inUse reports whether a keeper runs here or has left something behind.
func (p place) inUse() (bool, error) {
	for _, name := range []string{keeperSocket, networkRecord} {
		if _, err := os.Lstat(filepath.Join(p.dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return err == nil, err
		}
	}
	lives, err := os.ReadDir(filepath.Join(p.dir, "lives"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return len(lives) > 0, err
}

// started is the version that was started here last; empty where that is not known.
func (p place) started() string {
	b, _ := os.ReadFile(filepath.Join(p.dir, versionFile))
	return strings.TrimSpace(string(b))
}

// vacated returns when the keeper has let go of the lock that it holds for life: it
// has closed everything else by then.
func (p place) vacated(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	f, err := os.Open(filepath.Join(p.dir, keeperLock))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := flock(ctx, f); err != nil {
		return fmt.Errorf("the keeper at %s, process %d, has shut down and does not end: %w", p.dir, p.pid(), err)
	}
	return nil
}

// flock waits for the lock of a file until ctx ends.
func flock(ctx context.Context, f *os.File) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// remove takes away what a keeper leaves that has shut down.
func (p place) remove() error {
	if filepath.Base(filepath.Dir(p.dir)) == keepersDir {
		err := os.RemoveAll(p.dir)
		os.Remove(filepath.Dir(p.dir)) // with the last one
		return err
	}
	if err := os.Remove(filepath.Join(p.dir, versionFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// start starts a keeper, and returns when it listens. Two engines that find none
// start one.
func (p place) start(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("no keeper runs at %s and only root can start one; run this as root: %w", p.dir, cube.ErrUnavailable)
	}
	if err := p.make(); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(p.dir, "keeper.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock(ctx, lock); err != nil {
		return fmt.Errorf("another process is starting it: %w", err)
	}
	if c, err := p.dial(ctx, nil); err == nil {
		return c.Close() // somebody was quicker
	}
	inUse, err := p.engines.begin(p.version)
	if err != nil {
		return err
	}
	defer inUse.Close()
	if err := replaceFile(filepath.Join(p.dir, versionFile), p.version+"\n"); err != nil {
		return err
	}
	// Whoever asked may have little time; a keeper that takes up many lives needs more.
	launching, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Second)
	defer cancel()
	return p.launch(launching, inUse)
}

// make makes the directory. Those above are the run directory, which is there.
func (p place) make() error {
	if parent := filepath.Dir(p.dir); filepath.Base(parent) == keepersDir {
		if err := mkdirOpen(parent); err != nil {
			return err
		}
	}
	return mkdirOpen(p.dir)
}

func replaceFile(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// launch executes the keeper, detached from us, and returns when it answers. The
// keeper inherits inUse, whose lock says for as long as it runs that the version is.
func (p place) launch(ctx context.Context, inUse *os.File) error {
	sentry := p.engines.sentry(p.version)
	logPath := filepath.Join(p.dir, "keeper.log")
	errs, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer errs.Close()
	cmd := exec.Command(sentry, "keeper", "-run", p.dir, "-cgroup", p.cgroup,
		"-network", filepath.Join(filepath.Dir(sentry), "cube-network"))
	cmd.Dir = "/"
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = errs, errs
	cmd.ExtraFiles = []*os.File{inUse}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // also reaps it if it dies before us
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		if c, err := p.dial(ctx, nil); err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case err := <-ended:
			return fmt.Errorf("%s ended at once: %v: %s", sentry, err, lastLine(logPath))
		case <-deadline:
			return errors.Join(fmt.Errorf("%s does not listen after 30 s; see %s", sentry, logPath), p.discard(cmd.Process))
		case <-ctx.Done():
			return errors.Join(ctx.Err(), p.discard(cmd.Process))
		}
	}
}

// discard ends a keeper that does not listen, unless it has its place already and is
// slow: it waits for another that does not end, and so would each that is started later.
func (p place) discard(keeper *os.Process) error {
	if p.pid() == keeper.Pid {
		return nil
	}
	return keeper.Kill()
}

func lastLine(path string) string {
	b, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}
