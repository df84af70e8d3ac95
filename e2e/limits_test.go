package e2e

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
)

// alone checks that another sandbox is not touched by what happens in one.
func alone(t *testing.T, trouble func(id cube.SandboxID, events <-chan cube.Event)) {
	t.Helper()
	l.Guard(t)
	id, other := witness(t), witness(t)
	before, c := l.Check(t, other), connect(t, other)
	trouble(id, l.Engine.Events(t.Context()))
	answersAsBefore(t, other, before, c)
}

// bomb makes processes until it is refused, keeps them, and says how many.
const bomb = `import os, signal
children = []
try:
    while True:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
except OSError as e:
    print(len(children), e.strerror, flush=True)
for pid in children:
    os.kill(pid, 9)
`

func TestAForkBombIsRefusedAtTheLimitAndItsSandboxAnswers(t *testing.T) {
	alone(t, func(_ cube.SandboxID, _ <-chan cube.Event) {
		id := small(t, func(l *cube.Limits) { l.Pids = 100 })
		noError(t, l.WriteFile(t.Context(), id, "/root/bomb.py", []byte(bomb)), "write the bomb")
		out := sh(t, id, "python3 /root/bomb.py")
		count, reason, _ := strings.Cut(out, " ")
		if n, _ := strconv.Atoi(count); n < 80 || n > 100 || reason != "Resource temporarily unavailable" {
			t.Errorf("got %q, want not quite 100 processes and then a refusal", out)
		}
		sh(t, id, "true")
		runs(t, id, 1)
	})
}

func TestAForkBombThatNobodyStopsTouchesNoOtherSandboxAndIsTold(t *testing.T) {
	alone(t, func(id cube.SandboxID, events <-chan cube.Event) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		l.Run(ctx, id, "/bin/bash", "-c", ":(){ :|:& };:; sleep 60")
		// The deadline has ended it, or the host's memory limit has ended the sandbox,
		// whose kernel pays for each process too: then that is told.
		again(t, "the sandbox answers, or its death is told", func(ctx context.Context) error {
			_, err := l.Run(ctx, id, "/bin/true")
			if !errors.Is(err, cube.ErrDead) {
				return err
			}
			if ev := event(t, events, cube.EventDied, id); ev.Death.Reason != cube.DeathOOM {
				t.Errorf("got %+v, want death by oom", ev.Death)
			}
			return nil
		})
	})
}

func TestAMemoryHogIsEndedAndTold(t *testing.T) {
	alone(t, func(id cube.SandboxID, events <-chan cube.Event) {
		shell := l.Shell(id, "")
		defer shell.Close()
		r, err := shell.Client().Run(t.Context(), "/usr/bin/python3", []string{"-c", `
held = []
while True:
    held.append(bytes(range(256)) * 4096)
`}, rootRun)
		noError(t, err, "run the hog")
		if r.ExitCode == 0 || !strings.Contains(r.Status, "killed") || r.Error != "oom" {
			t.Errorf("got exit code %d, status %q, error %q; want killed for oom", r.ExitCode, r.Status, r.Error)
		}
		event(t, events, cube.EventOOM, id)
		sh(t, id, "true")
		runs(t, id, 1)
	})
}

// small boots a sandbox with another limit than the template's.
func small(t *testing.T, change func(*cube.Limits)) cube.SandboxID {
	t.Helper()
	img, err := l.Images.Image(l.Base)
	noError(t, err, "template")
	limits := img.Limits
	change(&limits)
	s, err := l.Engine.Boot(t.Context(), cube.BootSpec{ID: cube.NewSandboxID(), Rootfs: img.Rootfs, Limits: limits})
	noError(t, err, "boot")
	return s.ID
}

func TestAFullDiskGivesENOSPCInsideAndRoomWhenSomethingIsRemoved(t *testing.T) {
	alone(t, func(_ cube.SandboxID, _ <-chan cube.Event) {
		id := small(t, func(l *cube.Limits) { l.DiskMiB = 64 })
		out := sh(t, id, "dd if=/dev/zero of=/root/big bs=1M count=200 2>&1; df -m / | tail -n 1")
		if !strings.Contains(out, "No space left on device") {
			t.Errorf("got %q, want no space left on device", out)
		}
		sh(t, id, "rm /root/big; dd if=/dev/zero of=/root/small bs=1M count=20 2>&1")
		runs(t, id, 1)
	})
}

func TestAFullHostDiskGivesENOSPCInsideAndEndsNothing(t *testing.T) {
	alone(t, func(id cube.SandboxID, _ <-chan cube.Event) {
		undo := l.FillDisk(t)
		out := sh(t, id, "dd if=/dev/zero of=/root/big bs=1M count=20 2>&1 || true")
		undo()
		if !strings.Contains(out, "No space left on device") {
			t.Errorf("got %q, want no space left on device", out)
		}
		sh(t, id, "dd if=/dev/zero of=/root/big bs=1M count=20 2>&1")
		runs(t, id, 1)
	})
}

func TestTheGuestSeesItsOwnSize(t *testing.T) {
	l.Guard(t)
	id := small(t, func(l *cube.Limits) { l.MemoryMiB, l.CPUs, l.DiskMiB = 300, 1, 500 })
	for command, want := range map[string][2]int64{ // least, most
		"nproc": {1, 1},
		"awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo": {280, 300},
		"df -m / | awk 'END {print $2}'":                         {450, 500},
	} {
		got, err := strconv.ParseInt(sh(t, id, command), 10, 64)
		if err != nil || got < want[0] || got > want[1] {
			t.Errorf("%s: got %d, %v; want %d to %d", command, got, err, want[0], want[1])
		}
	}
}

func TestUsersCannotReachTheAgent(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	// Of its processes they see their own init alone, of its file system nothing.
	got := sh(t, id, "grep -l [c]ube-guest /proc/[0-9]*/cmdline; ls /boot; grep ' /boot' /proc/mounts; true")
	if got != "/proc/1/cmdline" {
		t.Errorf("users see the agent: %q", got)
	}
	// Its control port answers nobody inside.
	if got := sh(t, id, "curl --silent --max-time 5 http://127.0.0.1:49982/v1/status || echo refused"); got != "refused" {
		t.Errorf("the control port answered %q", got)
	}
}

func TestNoNameResolvesAndNothingGoesOut(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	began := time.Now()
	got := sh(t, id, `python3 - <<'END'
import socket
for host in ("example.com", "metadata.google.internal"):
    try:
        print(socket.getaddrinfo(host, 80))
    except socket.gaierror as e:
        print(e.errno == socket.EAI_NONAME)
for address in (("203.0.113.1", 80), ("169.254.169.254", 80), ("10.0.0.1", 22)):
    try:
        socket.create_connection(address, 3)
        print("connected")
    except OSError:
        print(True)
END`)
	if got != strings.TrimSpace(strings.Repeat("True\n", 5)) {
		t.Errorf("got %q, want every name unknown and every address out of reach", got)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v to be told, want at once", took)
	}
}
