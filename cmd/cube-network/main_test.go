package main_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"cubesandbox/internal/fdrpc"
	"cubesandbox/network"
	"cubesandbox/network/api"
	"cubesandbox/network/networktest"
)

var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cube-network")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "cube-network")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build: %v: %s", err, out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// listen makes the socket that the keeper makes.
func listen(t testing.TB) (path string, listener *os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "network.sock")
	l, err := fdrpc.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if listener, err = l.File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return path, listener
}

type process struct {
	*exec.Cmd
	log  strings.Builder
	once sync.Once
	err  error
}

func start(t testing.TB, listener *os.File, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(program, args...)}
	p.ExtraFiles = []*os.File{listener}
	p.Stderr = &p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("log: %s", p.log.String())
		}
	})
	return p
}

// end sends a signal and returns what Wait says.
func (p *process) end(s syscall.Signal) error {
	p.once.Do(func() {
		p.Process.Signal(s)
		p.err = p.Wait()
	})
	return p.err
}

func client(t testing.TB, path string) *network.Client {
	t.Helper()
	c := network.NewClient(path)
	t.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// echo answers every connection with what it is sent.
func echo(t testing.TB, g *networktest.Guest, port uint16) {
	t.Helper()
	l := g.Listen(t, port, false).(*gonet.TCPListener)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { io.Copy(c, c); c.Close() })
		}
	})
	t.Cleanup(func() { l.Shutdown(); l.Close(); g.Stack.Close(); wg.Wait() })
}

var ctx = context.Background()

func dial(t testing.TB, c *network.Client, life string, port uint16) *net.UnixConn {
	t.Helper()
	conn, err := c.Dial(ctx, api.Dial{Life: life, Port: port, Via: api.ViaDirect})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func wantEcho(t testing.TB, conn net.Conn, text string) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(conn, text)
	b := make([]byte, len(text))
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != text {
		t.Errorf("got %.40q, %v, want %.40q", b, err, text)
	}
}

func TestNothingIsLeftOfItsPrivileges(t *testing.T) {
	path, l := listen(t)
	p := start(t, l)
	client(t, path)
	proc := fmt.Sprintf("/proc/%d/", p.Process.Pid)
	status := fields(t, proc+"status")
	none := "0000000000000000"
	for key, want := range map[string]string{
		"Uid": "64902 64902 64902 64902", "Gid": "64902 64902 64902 64902", "Groups": "",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2",
	} {
		if status[key] != want {
			t.Errorf("%s: got %q, want %q", key, status[key], want)
		}
	}
	for _, ns := range []string{"net", "ipc", "uts", "mnt", "cgroup"} {
		mine, _ := os.Readlink("/proc/self/ns/" + ns)
		if its, err := os.Readlink(proc + "ns/" + ns); err != nil || its == mine {
			t.Errorf("namespace %s: got %s, %v, want another than %s", ns, its, err, mine)
		}
	}
	if entries, err := os.ReadDir(proc + "root/"); err != nil || len(entries) != 0 {
		t.Errorf("root directory: got %v, %v, want nothing", entries, err)
	}
	if err := os.WriteFile(proc+"root/x", nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("write to the root directory: got %v, want EROFS", err)
	}
	if mounts, err := os.ReadFile(proc + "mounts"); err != nil || strings.Count(string(mounts), "\n") != 1 {
		t.Errorf("mounts: got %q, %v, want one", mounts, err)
	}
	if st, err := os.Stat(proc + "mem"); err != nil || st.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("its memory belongs to its user: it is dumpable (%v)", err)
	}
}

// fields reads a file of "Key: values" lines.
func fields(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := map[string]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		key, values, _ := strings.Cut(s.Text(), ":")
		m[key] = strings.Join(strings.Fields(values), " ")
	}
	return m
}

func TestKilledProcessIsReplacedUnderRunningGuests(t *testing.T) {
	path, l := listen(t)
	first := start(t, l)
	c := client(t, path)
	g, nic := networktest.NewGuest(t)
	echo(t, g, 80)
	life := networktest.NewLife()
	if err := c.Plug(ctx, life, nic); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, c, life, 80)
	wantEcho(t, conn, "before")

	first.end(syscall.SIGKILL)
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connection: got %v, want ECONNRESET", err)
	}

	start(t, l)
	c = client(t, path)
	if err := c.Plug(ctx, life, nic); err != nil {
		t.Fatal(err)
	}
	wantEcho(t, dial(t, c, life, 80), "after")
}

func TestTermEndsItCleanly(t *testing.T) {
	path, l := listen(t)
	p := start(t, l)
	c := client(t, path)
	g, nic := networktest.NewGuest(t)
	echo(t, g, 80)
	life := networktest.NewLife()
	if err := c.Plug(ctx, life, nic); err != nil {
		t.Fatal(err)
	}
	wantEcho(t, dial(t, c, life, 80), "x")
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("got %v, want exit status 0", err)
	}
}

func TestItOutlivesItsParentAndTheReaderOfItsLog(t *testing.T) {
	path, l := listen(t)
	logReader, logWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command("sh", "-c", `"$0" >/dev/null & echo $!`, program)
	parent.ExtraFiles = []*os.File{l}
	parent.Stderr = logWriter
	out, err := parent.Output()
	logWriter.Close()
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(out), &pid); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	c := client(t, path)
	logReader.Close()
	syscall.Kill(pid, syscall.SIGHUP)
	_, nic := networktest.NewGuest(t)
	for range 3 { // each is logged
		if err := c.Plug(ctx, networktest.NewLife(), nic); err != nil {
			t.Fatal(err)
		}
	}
	if lives, err := c.Lives(ctx); err != nil || len(lives) != 3 {
		t.Errorf("got %v, %v, want three lives", lives, err)
	}
}

func TestItDoesNotServeUnconfined(t *testing.T) {
	_, l := listen(t)
	p := exec.Command(program)
	p.ExtraFiles = []*os.File{l}
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64902, Gid: 64902}}
	os.Chmod(filepath.Dir(program), 0o755)
	if out, err := p.CombinedOutput(); err == nil || !strings.Contains(string(out), "confined") {
		t.Errorf("started by its own user: got %v, %s, want a refusal", err, out)
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pair[0])
	p = exec.Command(program)
	p.ExtraFiles = []*os.File{os.NewFile(uintptr(pair[1]), "pair")}
	defer p.ExtraFiles[0].Close()
	if out, err := p.CombinedOutput(); err == nil || !strings.Contains(string(out), "accept") {
		t.Errorf("no listener: got %v, %s, want a refusal", err, out)
	}
}

// The filter must allow whatever Go's runtime does under load.
func TestLoadUnderTheFilter(t *testing.T) {
	path, l := listen(t)
	p := start(t, l)
	c := client(t, path)
	var wg sync.WaitGroup
	for range 5 {
		g, nic := networktest.NewGuest(t)
		echo(t, g, 80)
		life := networktest.NewLife()
		if err := c.Plug(ctx, life, nic); err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			wg.Go(func() {
				for n := range 20 {
					conn, err := c.Dial(ctx, api.Dial{Life: life, Port: 80, Via: api.ViaDirect, TimeoutMS: 30_000})
					if err != nil {
						t.Error(err)
						return
					}
					wantEcho(t, conn, strings.Repeat("x", 1+rand.Intn(1<<18)))
					if (i+n)%4 != 0 {
						conn.CloseWrite()
						io.Copy(io.Discard, conn)
					}
					conn.Close()
				}
			})
		}
	}
	wg.Wait()
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("got %v, want exit status 0", err)
	}
}
