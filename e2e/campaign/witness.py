"""A program that must come through everything whole, and can prove it.

Usage: witness.py DIR PORT MIB. Returns when it serves; a child of its own session goes
on. It holds MIB MiB of random memory and its digest, a counter that a thread moves
every 20 ms, two files that grow by a line each time (one is synced each time, one
never), an environment, and a TCP connection to a child of its own.

Each POST to PORT has one JSON request and one JSON answer:
  {"op": "check"}                      uses all of it → what is held
  {"op": "put", "key": k, "value": v}  keeps v in memory and in the file DIR/k
  {"op": "get", "key": k}              → "memory", "file"
"""
import hashlib
import http.server
import json
import os
import secrets
import signal
import socket
import sys
import threading

TICK = 0.02  # seconds
LONGEST = 1 << 20  # bytes of one request


def link(before, n):
    """The line that follows: it names its number and seals all before it."""
    return hashlib.sha256(f"{before} {n}".encode()).hexdigest()[:16]


class Log:
    """A file that grows, and what must be in it."""

    def __init__(self, path, sync):
        self.path, self.sync = path, sync
        self.file = open(path, "w")
        self.n, self.seal = 0, ""

    def grow(self):
        self.n += 1
        self.seal = link(self.seal, self.n)
        self.file.write(f"{self.n} {self.seal}\n")
        self.file.flush()
        if self.sync:
            os.fsync(self.file.fileno())

    def check(self):
        seal, n = "", 0
        with open(self.path) as f:
            for n, line in enumerate(f, 1):
                seal = link(seal, n)
                if line != f"{n} {seal}\n":
                    return f"line {n} of {self.path} is {line!r}"
        if (n, seal) != (self.n, self.seal):
            return f"{self.path} has {n} lines, {self.n} were written"
        return ""


class Held:
    def __init__(self, dir, mib, peer):
        self.dir, self.lock = dir, threading.Lock()
        self.identity = secrets.token_hex(8)
        self.memory = bytearray(mib << 20)
        for i in range(mib):
            self.memory[i << 20:(i + 1) << 20] = os.urandom(1 << 20)
        self.digest = hashlib.sha256(self.memory).hexdigest()
        self.counter = 0
        self.logs = [Log(f"{dir}/synced", True), Log(f"{dir}/unsynced", False)]
        self.values = {}
        self.environ = dict(os.environ)
        self.peer, self.said = peer, 0

    def tick(self):
        wait = threading.Event()
        while not wait.wait(TICK):
            with self.lock:
                self.counter += 1
                for log in self.logs:
                    log.grow()

    def check(self, _):
        broken = []
        if hashlib.sha256(self.memory).hexdigest() != self.digest:
            broken.append("the memory has another digest")
        if dict(os.environ) != self.environ:
            broken.append("the environment has changed")
        with self.lock:
            broken += [wrong for wrong in (log.check() for log in self.logs) if wrong]
            counter = self.counter
            if any(log.n != counter for log in self.logs):
                broken.append(f"the counter is {counter}, the files have {[log.n for log in self.logs]} lines")
            try:
                self.talk()
            except OSError as e:
                broken.append(f"the connection: {e}")
        for key in list(self.values):
            got = self.get({"key": key})
            if got["memory"] != got["file"]:
                broken.append(f"{key}: {got}")
        return {"broken": broken, "identity": self.identity, "pid": os.getpid(), "counter": counter,
                "digest": self.digest, "bytes": len(self.memory), "said": self.said, "mark": os.environ.get("MARK", "")}

    def talk(self):
        """The child counts what it hears, so that a lost or doubled byte shows."""
        self.said += 1
        self.peer.sendall(f"{self.said}\n".encode())
        heard = b""
        while not heard.endswith(b"\n"):
            got = self.peer.recv(100)
            if not got:
                raise OSError("the other end is gone")
            heard += got
        if heard != f"{self.said} {self.said}\n".encode():
            raise OSError(f"heard {heard!r} as answer {self.said}")

    def put(self, request):
        key, value = request["key"], request["value"]
        with self.lock:
            self.values[key] = value
            with open(f"{self.dir}/{key}.value", "w") as f:
                f.write(value)
                f.flush()
                os.fsync(f.fileno())
        return {}

    def get(self, request):
        path = f"{self.dir}/{request['key']}.value"
        with self.lock:
            return {"memory": self.values.get(request["key"], ""), "file": open(path).read() if os.path.exists(path) else ""}


def echo(listener):
    conn = listener.accept()[0]
    listener.close()
    for n, line in enumerate(conn.makefile("rb"), 1):
        conn.sendall(line.strip() + f" {n}\n".encode())


def connect(tell):
    """A connection to a child process, which must not hold tell open."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    if os.fork() == 0:
        os.close(tell)
        echo(listener)
        os._exit(0)
    listener.close()
    peer = socket.create_connection(address)
    peer.settimeout(10)
    return peer


def handler(held):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(min(int(self.headers["Content-Length"]), LONGEST)))
            answer = json.dumps({"check": held.check, "put": held.put, "get": held.get}[request["op"]](request)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass
    return Handler


def main(dir, port, mib, tell):
    held = Held(dir, mib, connect(tell))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler(held))
    threading.Thread(target=held.tick, daemon=True).start()
    os.write(tell, b"1")
    os.close(tell)
    server.serve_forever()


if __name__ == "__main__":
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        sys.exit(0 if os.read(ready, 1) else "the witness did not start; see its log")
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.makedirs(sys.argv[1], exist_ok=True)
    log = os.open(f"{sys.argv[1]}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open("/dev/null", os.O_RDONLY)
    for fd, to in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, to)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), tell)
