package abuse

import (
	"fmt"
	"strings"
	"testing"

	"cubesandbox/e2e/lab"
)

// all has a sandbox of its own withstand each abuse, beside one that is asked all the time.
func all(t *testing.T, abuses map[string]abuse) {
	t.Helper()
	s.Guard(t)
	beside(t)
	for name, a := range abuses {
		t.Run(name+" as "+a.as, func(t *testing.T) {
			t.Parallel()
			withstand(t, a)
		})
	}
}

// held ends a program of an abuse: it says that it has what it wants, and keeps it.
const held = `
print("ready", flush=True)
import signal
while True: signal.pause()
`

// bomb makes processes until it is refused: child is what makes one.
func bomb(child string) string {
	return python(`import os, signal
told = False
while True:
    try:
        ` + child + `
    except OSError:
        if not told: print("ready", flush=True)
        told = True
        if os.getpid() % 2: signal.pause()`)
}

func TestForkBombsLeaveTheAgentAnswering(t *testing.T) {
	all(t, map[string]abuse{
		"a bomb whose processes wait":    {as: "user", line: bomb(`os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})`), want: refuses},
		"a bomb whose processes fork on": {as: "root", line: bomb("os.fork()"), want: endsOrNot, reason: "oom"},
		// Who leaves the control groups has no limit inside, and meets that of the host.
		"a bomb outside of its limits": {as: "root", want: endsOrNot, reason: "oom", line: `exec unshare --user --map-root-user --mount --cgroup sh -c 'mount -t cgroup2 none /mnt && echo $$ >/mnt/cgroup.procs
exec python3 -c "
import os, signal
try:
    for _ in range(1000): os.posix_spawn(\"/bin/sleep\", [\"sleep\", \"1000\"], {})
except OSError: pass
print(\"ready\", flush=True)
while True: signal.pause()"'`},
		"threads": {as: "user", want: refuses, line: python(`import threading
lock = threading.Lock(); lock.acquire()
try:
    while True: threading.Thread(target=lock.acquire, daemon=True).start()
except (RuntimeError, MemoryError): pass
print("ready", flush=True)
lock.acquire()`)},
	})
}

func TestMemoryThatIsUsedUpLeavesTheAgentAnsweringOrIsTheReason(t *testing.T) {
	all(t, map[string]abuse{
		"hogs, one after the other": {as: "user", want: answers, line: `hog='held = []
while True: held.append(bytes(range(256)) * 4096)'
python3 -c "$hog"; echo ready; while :; do python3 -c "$hog"; done`},
		"files in memory": {as: "root", want: answers, line: `dd if=/dev/zero of=/dev/shm/all bs=1M 2>/dev/null; echo ready; sleep 1000`},
		// The kernel inside pays for what is under way in it, and the host ends the sandbox.
		"pipes": {as: "root", want: endsOrNot, reason: "oom", line: python(`import fcntl, os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1000000, 1000000))
try:
    while True:
        r, w = os.pipe()
        fcntl.fcntl(w, 1031, 1 << 20)
        os.set_blocking(w, False)
        os.write(w, b"x" * (1 << 20))
except OSError: pass` + held)},
		"sockets": {as: "user", want: endsOrNot, reason: "oom", line: python(`import socket
kept = []
try:
    while True:
        a, b = socket.socketpair()
        a.setblocking(False)
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        kept.append((a, b))
        try:
            while True: a.send(b"x" * 65536)
        except BlockingIOError: pass
except OSError: pass` + held)},
	})
}

// files is how many are made in one directory. A million take more memory of the kernel
// inside than this template has, which the long form shows.
func files() int {
	switch lab.Form() {
	case "ci":
		return 50_000
	case "long":
		return 1_000_000
	}
	return 20_000
}

func TestFullDisksAndManyFilesLeaveTheAgentAnsweringOrAreTheReason(t *testing.T) {
	many := abuse{as: "user", want: answers, reason: "oom", line: python(fmt.Sprintf(`import os
os.mkdir("/home/user/many")
os.chdir("/home/user/many")
for i in range(%d): os.close(os.open("file%%d" %% i, os.O_CREAT | os.O_WRONLY))`, files()) + held)}
	if lab.Form() == "long" {
		many.want = endsOrNot
	}
	all(t, map[string]abuse{
		"a full disk":     {as: "user", want: answers, line: `dd if=/dev/zero of=$HOME/all bs=1M 2>/dev/null; echo ready; sleep 1000`},
		"all that is one": {as: "root", want: answers, line: `for d in /tmp /run /var /dev/shm /; do dd if=/dev/zero of=$d/all bs=1M 2>/dev/null; done; while echo x >>/tmp/log; do :; done 2>/dev/null; echo ready; sleep 1000`},
		"many files":      many,
		"deep folders": {as: "user", want: answers, line: python(`import os
os.chdir("/home/user")
for _ in range(5000):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)` + held)},
	})
}

func TestEndlessOutputLeavesTheAgentAnswering(t *testing.T) {
	all(t, map[string]abuse{
		"a line without an end": {as: "user", want: answers, line: `echo ready; exec tr '\0' x </dev/zero`},
		"lines without an end":  {as: "root", want: answers, line: `echo ready; exec yes`},
		"all that a command may be told": {as: "root", want: answers, line: python(`import os
big = "x" * 120000
print("ready", flush=True)
while True:
    try: os.posix_spawn("/bin/true", ["true"] + [big] * 10, {str(i): big for i in range(5)})
    except OSError: pass
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except OSError: pass`)},
		"many writers": {as: "user", want: answers, line: `echo ready; for i in 1 2 3 4 5 6 7 8; do yes & yes >&2 & done; wait`},
	})
}

func TestDescriptorsAndWatchesThatAreUsedUpLeaveTheAgentAnswering(t *testing.T) {
	more := `import ctypes, os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1000000, 1000000))
def all(most, f):
    try:
        for _ in range(most): f()
    except OSError: pass
`
	all(t, map[string]abuse{
		"files": {as: "user", want: answers, line: python(strings.Replace(more, "(1000000, 1000000)", "(4096, 4096)", 1) + `all(4096, lambda: os.open("/dev/null", 0))` + held)},
		"all kinds": {as: "root", want: answers, line: python(more + `libc = ctypes.CDLL(None)
all(20000, lambda: os.open("/dev/null", 0))
all(3000, os.openpty)
all(3000, libc.inotify_init)
all(3000, os.pipe)
all(3000, lambda: os.eventfd(0))` + held)},
		"no limit is left for anybody": {as: "root", want: endsOrNot, line: python(`import os, resource
for pid in [1] + [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]:
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            try: resource.prlimit(pid, getattr(resource, name), (0, 0))
            except (OSError, ValueError): pass` + held)},
	})
}
