"""A program that must go on after any verb: it holds one of everything.

Usage: witness.py DIR. Returns when it serves; a child of its own session goes on.
Port 7000 on 127.0.0.1 takes one JSON request a line and answers with one line:
  {"op": "put", "key": k, "value": v}   keeps v in memory and in the file DIR/kv/k
  {"op": "get", "key": k}               → value; an error when the two differ
  {"op": "check"}                       uses everything that is held → results
  {"op": "fill", "mib": n}              holds n MiB of random memory
  {"op": "env"}                         → host name of this life
Port 7001 sends back every line.
"""
import asyncio
import ctypes
import json
import os
import pty
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys

LIMIT = 32 << 20  # bytes of one request


class Held:
    """What the witness holds, and a way to use each."""

    def __init__(self, dir):
        self.dir = dir
        self.identity = secrets.token_hex(8)
        self.values = {}
        self.memory = b""
        self.uses = 0
        os.makedirs(f"{dir}/kv", exist_ok=True)
        os.makedirs(f"{dir}/watched", exist_ok=True)

        self.unlinked = open(f"{dir}/unlinked", "w+b")
        os.unlink(f"{dir}/unlinked")
        self.written = b""

        self.child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.pipe_out, self.pipe_in = os.pipe()
        os.write(self.pipe_in, b"kept")  # stays in it
        self.in_pipe = b"kept"

        self.shell, self.terminal = pty.fork()
        if self.shell == 0:
            os.execve("/bin/bash", ["bash", "--norc", "--noediting"], {"PATH": "/usr/bin:/bin", "PS1": "", "TERM": "dumb"})
        self.say(f"stty -echo; MARK={self.identity}; printf 're%s\\n' ady\n")  # its echo has no "ready"
        self.hear(b"ready\r\n")

        libc = ctypes.CDLL(None, use_errno=True)
        self.inotify = libc.inotify_init1(os.O_NONBLOCK)
        if self.inotify < 0 or libc.inotify_add_watch(self.inotify, f"{dir}/watched".encode(), 0x100) < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    async def connect(self):
        """The loopback connection, both of whose ends are in this process."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", 7001)

    def say(self, text):
        os.write(self.terminal, text.encode())

    def hear(self, end):
        got = b""
        while not got.endswith(end):
            got += read(self.terminal)
        return got

    async def check(self):
        self.uses += 1
        results = {}
        for name in ("tcp", "unlinked", "child", "pipe", "terminal", "inotify", "timer"):
            try:
                use = getattr(self, "use_" + name)
                await asyncio.wait_for(use(f"{name} {self.uses}".encode()), 5)
                results[name] = "ok"
            except Exception as e:  # any way to fail is a result
                results[name] = f"{type(e).__name__}: {e}"
        return results

    async def use_tcp(self, token):
        self.writer.write(token + b"\n")
        await self.writer.drain()
        expect(await self.reader.readline(), token + b"\n")

    async def use_unlinked(self, token):
        self.unlinked.seek(0, os.SEEK_END)
        self.unlinked.write(token)
        self.unlinked.flush()
        self.written += token
        self.unlinked.seek(0)
        expect(self.unlinked.read(), self.written)
        expect(os.fstat(self.unlinked.fileno()).st_nlink, 0)

    async def use_child(self, token):
        expect(self.child.poll(), None)
        self.child.stdin.write(token)
        expect(read(self.child.stdout.fileno()), token)

    async def use_pipe(self, token):
        os.write(self.pipe_in, token)
        expect(read(self.pipe_out), self.in_pipe + token)
        os.write(self.pipe_in, token)
        self.in_pipe = token

    async def use_terminal(self, token):
        self.say(f"test -t 0 && echo $MARK $$ {token.decode()}\n")
        expect(self.hear(token + b"\r\n"), f"{self.identity} {self.shell} ".encode() + token + b"\r\n")

    async def use_inotify(self, token):
        name = token.replace(b" ", b"-")
        open(os.path.join(self.dir.encode(), b"watched", name), "w").close()
        event = read(self.inotify)
        size = struct.unpack("iIII", event[:16])[3]
        expect(event[16:16 + size].rstrip(b"\0"), name)

    async def use_timer(self, token):
        await asyncio.sleep(0.001)


def read(fd):
    if not select.select([fd], [], [], 3)[0]:
        raise TimeoutError("nothing to read after 3 s")
    return os.read(fd, 65536)


def expect(got, want):
    if got != want:
        raise ValueError(f"got {got!r}, want {want!r}")


async def answer(held, request):
    op, key = request["op"], request.get("key", "")
    path = f"{held.dir}/kv/{key}"
    if op == "put":
        held.values[key] = request["value"]
        with open(path, "w") as f:
            f.write(request["value"])
        return {}
    if op == "get":
        value = held.values.get(key, "")
        stored = open(path).read() if os.path.exists(path) else ""
        if value != stored:
            return {"error": f"in memory {value[:80]!r}, in the file {stored[:80]!r}"}
        return {"value": value}
    if op == "check":
        return {"results": await held.check(), "identity": held.identity, "pid": os.getpid(), "uses": held.uses}
    if op == "fill":
        held.memory = secrets.token_bytes(request["mib"] << 20)
        return {}
    if op == "env":
        return {"hostname": socket.gethostname()}
    return {"error": f"unknown op {op}"}


async def serve(held, reader, writer):
    try:
        while line := await reader.readline():
            writer.write(json.dumps(await answer(held, json.loads(line))).encode() + b"\n")
            await writer.drain()
    except (ConnectionError, asyncio.CancelledError):
        pass  # a connection of an earlier life
    finally:
        writer.close()


async def echo(reader, writer):
    try:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
    except (ConnectionError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


async def main(dir, tell):
    await asyncio.start_server(echo, "127.0.0.1", 7001)
    held = Held(dir)
    await held.connect()
    server = await asyncio.start_server(lambda r, w: serve(held, r, w), "127.0.0.1", 7000, limit=LIMIT)
    os.write(tell, b"1")
    os.close(tell)
    await server.serve_forever()


if __name__ == "__main__":
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        sys.exit(0 if os.read(ready, 1) else "the witness did not start")
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.makedirs(sys.argv[1], exist_ok=True)
    log = os.open(f"{sys.argv[1]}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open("/dev/null", os.O_RDONLY)
    for fd, to in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, to)
    asyncio.run(main(sys.argv[1], tell))
