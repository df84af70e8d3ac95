"""What the Python programs have in common: how content is made and how they answer.

A program holds pieces. What a piece has to hold follows from its number, the round in which
it was written and the mark that was set then, so that every byte can be told; number,
round and mark are kept elsewhere than the piece. Workers go round without pause: each
round reads pieces, compares every byte, and writes them anew. A worker that finds
something wrong says so for ever.

GET /check compares everything that is held, GET /mark?name=NAME sets a mark, which all
that is written from then on depends on, GET /spoil changes a byte behind the program's
back, GET /rounds does nothing. All answer JSON:
  broken    what was ever found wrong, as lines
  identity  of this process, drawn when it started
  pid       its number
  bytes     how many are held
  rounds    of each worker by its name
  marks     all that were set, in order: name, and the rounds at that moment
"""
import hashlib
import http.server
import json
import os
import random
import secrets
import threading
import traceback
import urllib.parse

PORT = 8000


def content(mark, piece, round, size):
    """The bytes of a piece."""
    return hashlib.shake_128(f"{mark}/{piece}/{round}".encode()).digest(size)


class Worker:
    """Goes round in a thread of its own. once(worker) is one round, under its lock;
    check(worker), under the same lock, compares all that is the worker's."""

    def __init__(self, name, once, check=lambda _: None):
        self.name, self.once, self.check = name, once, check
        self.lock, self.rounds = threading.Lock(), 0
        self.gate = threading.Lock()  # who waits for the lock holds it: the worker comes behind
        self.random = random.Random(name)

    def __enter__(self):
        self.gate.acquire()
        self.lock.acquire()
        self.gate.release()
        return self

    def __exit__(self, *_):
        self.lock.release()


class Work:
    def __init__(self, bytes):
        self.bytes, self.workers, self.broken, self.marks = bytes, [], [], []
        self.identity, self.mark = secrets.token_hex(8), "none"

    def add(self, name, once, check=lambda _: None):
        self.workers.append(Worker(name, once, check))

    def wrong(self, what):
        if len(self.broken) < 20:
            self.broken.append(what)

    def same(self, what, got, want):
        """Compares two byte strings."""
        if got == want:
            return
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        self.wrong(f"{what}: {len(got)} bytes, want {len(want)}; they differ from byte {at}: "
                   f"{got[at:at + 16].hex()}, want {want[at:at + 16].hex()}")

    def run(self, worker):
        while True:
            try:
                with worker:
                    worker.once(worker)
                    worker.rounds += 1
            except Exception:
                self.wrong(f"{worker.name}: {traceback.format_exc(limit=-3)}")
                return

    def state(self):
        return {"broken": self.broken, "identity": self.identity, "pid": os.getpid(), "bytes": self.bytes,
                "rounds": {w.name: w.rounds for w in self.workers}, "marks": self.marks}

    def check(self):
        for w in self.workers:
            with w:
                w.check(w)
        return self.state()

    def set(self, name):
        self.mark = name
        self.marks.append({"name": name, "rounds": self.state()["rounds"]})
        return self.state()

    def spoil(self):
        with self.workers[0]:
            self.change()  # which each program has

    def serve(self):
        """Starts all workers and answers, for ever."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), handler(self))
        for w in self.workers:
            threading.Thread(target=self.run, args=(w,), daemon=True).start()
        server.serve_forever()


def handler(work):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            url = urllib.parse.urlparse(self.path)
            try:
                if url.path.endswith("/mark"):
                    answer = work.set(urllib.parse.parse_qs(url.query)["name"][0])
                elif url.path.endswith("/check"):
                    answer = work.check()
                else:
                    if url.path.endswith("/spoil"):
                        work.spoil()
                    answer = work.state()
            except Exception:
                work.wrong(f"{self.path}: {traceback.format_exc(limit=-3)}")
                answer = work.state()
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass
    return Handler
