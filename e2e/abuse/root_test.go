package abuse

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// connections is how many there are at a time to the ports of the agent.
func connections() int {
	if lab.Form() == "" {
		return 1000
	}
	return 10_000
}

func TestRootThatFillsTheAgentsSocketsLeavesItAnswering(t *testing.T) {
	// Both ports, with half a request on each connection that comes about.
	connect := `import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (100000, 100000))
kept = []
def connect(address, port):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    s.settimeout(0.2)
    kept.append(s)
    try:
        s.connect((address, port))
        s.send(b"POST /process.Process/Start HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n")
    except OSError: pass
`
	all(t, map[string]abuse{
		"many connections": {as: "root", want: answers, line: python(connect + fmt.Sprintf(`for i in range(%d): connect(("127.0.0.1", "169.254.0.21")[i %% 2], (49983, 49982)[i // 2 %% 2])`, connections()) + held)},
		"connections without an end": {as: "root", want: answers, line: python(connect + `import os
for _ in range(7):
    if os.fork() == 0: break
print("ready", flush=True)
while True:
    connect("127.0.0.1", 49983)
    if len(kept) > 300: kept.clear()`)},
		"requests without an end": {as: "user", want: answers, line: python(`import http.client
print("ready", flush=True)
while True:
    c = http.client.HTTPConnection("127.0.0.1", 49983, timeout=5)
    try:
        for path in ("/health", "/files?path=/dev/zero", "/" + "x" * 60000, "/process.Process/List"):
            c.request("GET", path, headers={"X-Long": "y" * 60000})
            c.getresponse().read(1000000)
    except (OSError, http.client.HTTPException): pass
    c.close()`)},
	})
}

func TestRootThatReplacesFilesLeavesTheAgentAnswering(t *testing.T) {
	all(t, map[string]abuse{
		"everything is removed":    {as: "root", want: refuses, line: `rm -rf --no-preserve-root / 2>/dev/null; echo ready`},
		"the accounts are garbage": {as: "root", want: refuses, line: `head -c 1000000 /dev/urandom >/etc/passwd; rm -f /etc/group; mkfifo /etc/group; echo ready; sleep 1000`},
		"the accounts are a pipe":  {as: "root", want: answers, line: `cp /bin/sleep /tmp; rm /etc/passwd; mkfifo /etc/passwd; echo ready; exec /tmp/sleep 1000`},
		"the accounts are endless": {as: "root", want: answers, line: `rm /etc/passwd; ln -s /dev/zero /etc/passwd; echo ready; sleep 1000`},
		"programs that hang": {as: "root", want: answers, line: `printf '#!/bin/sh\nexec sleep 10000\n' >/tmp/hang; chmod +x /tmp/hang
mv /tmp/hang /bin/bash; for home in ~root ~user; do rm -f $home/.bash_profile; mkfifo $home/.bash_profile; done; echo ready; sleep 1000`},
		"a library for everybody": {as: "root", want: answers, line: `echo /nowhere.so >/etc/ld.so.preload; rm -f /etc/resolv.conf /etc/hosts; mkfifo /etc/hosts; echo ready; sleep 1000`},
		"what the agent shows is overwritten": {as: "root", want: answers, line: `echo other >/run/cube/id; echo 99 >/run/cube/generation; rm -rf /run/cube /boot
mount -t tmpfs x /run/cube; mount -t tmpfs x /; umount -l /proc; umount -l /sys/fs/cgroup; echo ready; sleep 1000`},
	})
}

func TestRootThatStopsAndKillsLeavesTheAgentAnsweringOrIsTheReason(t *testing.T) {
	all(t, map[string]abuse{
		"everything is killed":  {as: "root", want: answers, deed: true, line: `sleep 1000 & sleep 1000 & echo ready; kill -9 -1; kill -9 1`},
		"everything is stopped": {as: "root", want: answers, line: `sleep 1000 & kill -STOP 1; echo ready; kill -STOP -1; kill -STOP $$`},
		// Another init begins without what the first had found by its name.
		"what init needs is elsewhere": {as: "root", want: answers, deed: true, line: `echo ready; mv /run /r; rm /dev/null; mv /sys /s; mv /proc /p; mv /boot /b; kill -9 1`},
		"what init needs is another":   {as: "root", want: answers, deed: true, line: `echo ready; mv /run /r; mkdir -p /run; ln -s / /run/cube; echo mine >/boot_id; rm /dev/null; mkfifo /dev/null; kill -9 1`},
		"signals without an end": {as: "root", want: answers, line: python(`import os, signal
print("ready", flush=True)
while True:
    for n in (1, 2, 15, 17, 18): os.kill(1, n)`)},
		// No program can be started while a process traces init.
		"init is traced": {as: "root", want: unhealthy, reason: "the init of the users' processes does not answer", line: python(`import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(16, 1, 0, 0) != 0: print("not traced", ctypes.get_errno(), flush=True)` + held)},
		"the control groups are gone": {as: "root", want: answers, line: `for f in $(find /sys/fs/cgroup -name cgroup.kill -o -name cgroup.freeze -o -name pids.max -o -name cgroup.procs); do echo 1 >$f; done 2>/dev/null
rmdir /sys/fs/cgroup/* 2>/dev/null; echo ready; sleep 1000`},
	})
}

// TestRootThatHasMovedWhatTheAgentShowsCannotWriteToIt: the agent writes there when the next
// life begins, and must find it as it has left it.
func TestRootThatHasMovedWhatTheAgentShowsCannotWriteToIt(t *testing.T) {
	s.Guard(t)
	b, err := s.API.Create(t.Context(), client.NewSandbox{Template: template})
	noError(t, err, "make a sandbox")
	root := func(line string) (string, error) {
		g, err := s.API.Guest(b.ID, b.AccessToken)
		noError(t, err, "get to it")
		var said bytes.Buffer
		_, err = g.Run(t.Context(), client.Command{Argv: []string{"/bin/bash", "-c", line}, User: "root", Stdout: &said, Stderr: &said})
		return said.String(), err
	}
	said, err := root("mv /run /r; kill -9 1")
	t.Logf("init is killed: %q, %v", said, err)
	if got := look(t, b, ""); got != answers {
		t.Fatalf("the outcome is %d, want %d", got, answers)
	}
	said, err = root(`cat /proc/sys/kernel/random/boot_id /r/cube/boot_id; (echo x >/r/cube/id) 2>&1; rm -f /r/cube/generation 2>&1; echo >/r/cube/subscribers/$$ && echo subscribed`)
	noError(t, err, "look from inside")
	lines := strings.Split(said, "\n")
	if len(lines) != 6 || lines[0] == "" || lines[0] != lines[1] || lines[4] != "subscribed" || strings.Count(said, "Read-only file system") != 2 {
		t.Errorf("inside it looks like this: %q", said)
	}
	noError(t, s.API.Kill(context.Background(), b.ID), "end it")
}

func TestRootCannotTakeTheNetworkAway(t *testing.T) {
	all(t, map[string]abuse{
		"by netlink and packets": {as: "root", want: answers, line: python(`import socket, struct
n = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
n.settimeout(2)
def ask(kind, body):
    n.send(struct.pack("IHHII", 16 + len(body), kind, 5, 1, 0) + body)
    got = n.recv(65536)
    return struct.unpack_from("i", got, 16)[0]
for index in (1, 2):
    link = struct.pack("BxHiII", 0, 0, index, 0, 1)
    address = struct.pack("BBBBI", 2, 30, 0, 0, index) + struct.pack("HH4s", 8, 2, bytes([169, 254, 0, 21]))
    for kind, body in ((16, link), (17, link), (20, address), (21, address), (24, bytes(12)), (25, bytes(12))):
        if ask(kind, body) == 0: print("done", kind, index, flush=True)
for family, kind in ((socket.AF_INET, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_RAW)):
    try:
        socket.socket(family, kind, 1)
        print("a raw socket", family, flush=True)
    except OSError: pass` + held)},
		"by its ports and addresses": {as: "root", want: answers, line: python(`import socket
kept = []
for port in range(20000, 50000):
    s = socket.socket()
    try:
        s.bind(("0.0.0.0", port))
        kept.append(s)
    except OSError: s.close()` + held)},
	})
}
