"""Holds its progress in memory only: a counter, a hold flag, a random identity.

Usage: program.py PORT. Returns when its server answers on 127.0.0.1:PORT; the
server goes on in a child of its own session. GET /state, /hold, /run, and
/wait?above=N, which answers when the counter is above N (504 after 20 s).
"""
import hashlib
import json
import os
import secrets
import signal
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class State:
    def __init__(self):
        self.identity = secrets.token_hex(16)
        self.counter = 0
        self.held = False
        self.changed = threading.Condition()

    def count(self):
        tick = threading.Event()  # never set: a clock of 100 ms
        while True:
            tick.wait(0.1)
            with self.changed:
                if not self.held:
                    self.counter += 1
                    self.changed.notify_all()

    def hold(self, held):
        with self.changed:
            self.held = held

    def wait(self, above):
        with self.changed:
            return self.changed.wait_for(lambda: self.counter > above, timeout=20)

    def view(self):
        with self.changed:
            counter, held = self.counter, self.held
        digest = hashlib.sha256(f"{self.identity}:{counter}".encode()).hexdigest()
        return {"counter": counter, "held": held, "identity": self.identity,
                "pid": os.getpid(), "digest": digest}


class Handler(BaseHTTPRequestHandler):
    state = None

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        status = 200
        if url.path == "/hold":
            self.state.hold(True)
        elif url.path == "/run":
            self.state.hold(False)
        elif url.path == "/wait":
            above = int(urllib.parse.parse_qs(url.query)["above"][0])
            status = 200 if self.state.wait(above) else 504
        elif url.path != "/state":
            status = 404
        body = json.dumps(self.state.view()).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def main():
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        ok = os.read(ready, 1)  # nothing when the child has failed
        sys.exit(0 if ok else "the server did not start")
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    Handler.state = State()
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    threading.Thread(target=Handler.state.count, daemon=True).start()
    os.write(tell, b"1")
    os.close(tell)
    server.serve_forever()


main()
