"""What a benchmark needs inside: memory and files to save, and a clock to see a stop.

Usage: guest.py PORT. Returns when it serves on 127.0.0.1:PORT; a child goes on.
GET /memory?mib=N holds N MiB of random memory, /files?mib=N a file of that size,
/watch begins a 1 ms loop, and /gap answers with the largest gap in it since the last /gap,
in seconds. /hello does nothing.
/change?mib=N writes N MiB anew in the middle of what is held, /touch writes to each
page of it and answers how many seconds that took, /read reads all of it.
"""
import os
import signal
import sys
import threading
import time
import urllib.parse
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

held = {"memory": b"", "gap": 0.0}
CHUNK = 1 << 20


def watch():
    last = time.monotonic()
    while True:
        time.sleep(0.001)
        now = time.monotonic()
        held["gap"] = max(held["gap"], now - last)
        last = now


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        mib = int(urllib.parse.parse_qs(url.query).get("mib", ["0"])[0])
        answer = ""
        if url.path == "/memory":
            held["memory"] = bytearray(mib * CHUNK)
            for i in range(mib):
                held["memory"][i * CHUNK:(i + 1) * CHUNK] = os.urandom(CHUNK)
        elif url.path == "/files":
            with open("/root/cube-bench-file", "wb") as f:
                for _ in range(mib):
                    f.write(os.urandom(CHUNK))
        elif url.path == "/change":
            at = len(held["memory"]) // 2
            for i in range(mib):
                held["memory"][at + i * CHUNK:at + (i + 1) * CHUNK] = os.urandom(CHUNK)
        elif url.path == "/touch":
            began = time.monotonic()
            held["memory"][::4096] = bytes(len(held["memory"]) // 4096)
            answer = str(time.monotonic() - began)
        elif url.path == "/read":
            zlib.crc32(held["memory"])
        elif url.path == "/watch":
            threading.Thread(target=watch, daemon=True).start()
        elif url.path == "/gap":
            answer, held["gap"] = str(held["gap"]), 0.0
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *args):
        pass


ready, tell = os.pipe()
if os.fork():
    os.close(tell)
    sys.exit(0 if os.read(ready, 1) else "the server did not start")
os.setsid()
signal.signal(signal.SIGHUP, signal.SIG_IGN)
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
null = os.open("/dev/null", os.O_RDWR)
for fd in (0, 1, 2):
    os.dup2(null, fd)
os.write(tell, b"1")
os.close(tell)
server.serve_forever()
