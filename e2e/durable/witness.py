"""A program whose whole state can be asked for, so that a test knows it again.

Usage: witness.py DIR. Returns when it serves, on 127.0.0.1:7000; it holds 8 MiB of
random memory, a counter, and two files that grow with it: one that is synced each time
and one that never is.
  GET  /        its state: the digest of its memory as it is now, and so on
  POST /step    counts, and writes to both files
  POST /renew   as /step, with other memory: it is another witness from now on
"""
import hashlib
import http.server
import json
import os
import secrets
import sys
import threading

SIZE = 8 << 20
DIR = sys.argv[1]
NAMES = ("synced", "unsynced")


class Witness:
    def __init__(self):
        self.lock = threading.Lock()
        self.counter = 0
        self.memory = b""
        os.makedirs(DIR, exist_ok=True)
        self.files = {name: open(f"{DIR}/{name}", "ab", buffering=0) for name in NAMES}

    def step(self, renew=False):
        if renew:
            self.memory = secrets.token_bytes(SIZE)
        self.counter += 1
        for name, file in self.files.items():
            file.write(f"{self.counter} {secrets.token_hex(512)}\n".encode())
        os.fsync(self.files["synced"].fileno())

    def state(self):
        held = {name: open(f"{DIR}/{name}", "rb").read() for name in NAMES}
        return {
            "memory": hashlib.sha256(self.memory).hexdigest(),
            "counter": self.counter,
            "pid": os.getpid(),
            "env": os.environ.get("WITNESS", ""),
            **{name: f"{content.count(10)} lines, {hashlib.sha256(content).hexdigest()}" for name, content in held.items()},
        }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(lambda: None)

    def do_POST(self):
        self.answer({"/step": witness.step, "/renew": lambda: witness.step(renew=True)}[self.path])

    def answer(self, act):
        with witness.lock:
            act()
            body = json.dumps(witness.state()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # a connection of an earlier life


ready, tell = os.pipe()
if os.fork():
    os.close(tell)
    sys.exit(0 if os.read(ready, 1) else "the witness did not start")
os.setsid()
null = os.open("/dev/null", os.O_RDWR)
for fd in range(3):
    os.dup2(null, fd)
witness = Witness()
witness.step(renew=True)
server = Server(("127.0.0.1", 7000), Handler)
os.write(tell, b"1")
os.close(tell)
server.serve_forever()
