"""redis under work: a server with an append-only file, which is forked for snapshots
again and again, and clients that write keys and read them back."""
import contextlib
import os
import socket
import subprocess
import sys
import time

import work

DIR = os.path.abspath(sys.argv[1])
SOCKET = f"{DIR}/redis.sock"
PIECES, SIZE, BATCH = 640, 5000, 16  # of each client; bytes; keys in a round
CLIENTS = ("left", "right")
PATIENCE = 3000  # looks, 20 ms apart: by the clock, the time in an image would count


class Redis:
    """One connection, to an address of TCP or by default to the server's own socket."""

    def __init__(self, address=SOCKET):
        self.socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        self.socket.connect(address)
        self.file = self.socket.makefile("rb")

    def all(self, *commands):
        """The answers to commands that are sent at once."""
        out = []
        for c in commands:
            out.append(b"*%d\r\n" % len(c))
            for word in c:
                word = word if isinstance(word, bytes) else str(word).encode()
                out.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(out))
        return [self.answer() for _ in commands]

    def one(self, *command):
        return self.all(command)[0]

    def answer(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            n = int(rest)
            return None if n < 0 else self.file.read(n + 2)[:-2]
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        raise RuntimeError(f"redis says {line[:200]!r}")

    def info(self):
        lines = self.one("INFO", "persistence").decode().split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)


class Client:
    def __init__(self, held, name):
        self.held, self.name, self.redis = held, name, Redis()
        self.written = {i: ("none", 0) for i in range(PIECES)}
        self.put(range(PIECES))

    def key(self, i):
        return f"{self.name}:{i}"

    def content(self, i):
        mark, round = self.written[i]
        return work.content(mark, self.key(i), round, SIZE - i)

    def put(self, pieces):
        for answer in self.redis.all(*(("SET", self.key(i), self.content(i)) for i in pieces)):
            if answer != b"OK":
                self.held.wrong(f"a write is answered {answer!r}")

    def compare(self, pieces):
        for i, got in zip(pieces, self.redis.all(*(("GET", self.key(i)) for i in pieces))):
            self.held.same(f"key {self.key(i)} of round and mark {self.written[i]}", got or b"", self.content(i))

    def once(self, worker):
        pieces = worker.random.sample(range(PIECES), BATCH)
        self.compare(pieces)
        for i in pieces:
            self.written[i] = (self.held.mark, worker.rounds)
        self.put(pieces)

    def check(self, _):
        for first in range(0, PIECES, BATCH):
            self.compare(range(first, first + BATCH))


class Saver:
    """Forks the server, and looks at what that wrote."""

    def __init__(self, held):
        self.held, self.redis = held, Redis()

    def idle(self):
        """Waits until no child of the server is at work, and returns what it says then."""
        for _ in range(PATIENCE):
            info = self.redis.info()
            if info["rdb_bgsave_in_progress"] == "0" and info["aof_rewrite_in_progress"] == "0" and info["aof_rewrite_scheduled"] == "0":
                return info
            time.sleep(0.02)
        raise RuntimeError(f"the server saves, and saves: {info}")

    def once(self, worker):
        self.idle()
        self.redis.one(*(["BGSAVE"], ["BGREWRITEAOF"])[worker.rounds % 2])
        info = self.idle()
        for name in ("rdb_last_bgsave_status", "aof_last_bgrewrite_status", "aof_last_write_status"):
            if info[name] != "ok":
                self.held.wrong(f"{name} is {info[name]}")
        if worker.rounds % 2 == 0:
            said = subprocess.run(["redis-check-rdb", f"{DIR}/dump.rdb"], capture_output=True, text=True)
            if said.returncode != 0:
                self.held.wrong(f"redis-check-rdb: {said.stdout[-500:]}{said.stderr[-500:]}")


class Keys(work.Work):
    def check(self):
        """Nobody writes while the server writes all to a file and reads it back."""
        with contextlib.ExitStack() as all:
            for w in self.workers:
                all.enter_context(w)
            saver = next(w.saver for w in self.workers if w.name == "saver")
            saver.idle()
            redis = saver.redis
            before = redis.one("DEBUG", "DIGEST")
            redis.one("DEBUG", "RELOAD")
            after = redis.one("DEBUG", "DIGEST")
            if before != after:
                self.wrong(f"the digest was {before!r}, and is {after!r} when all is read again")
            if redis.one("DBSIZE") != len(CLIENTS) * PIECES:
                self.wrong(f"there are {redis.one('DBSIZE')} keys, want {len(CLIENTS) * PIECES}")
            for w in self.workers:
                w.check(w)
            return self.state()


def start(*flags):
    os.makedirs(DIR, exist_ok=True)
    subprocess.Popen([
        "redis-server", "--port", "0", "--unixsocket", SOCKET, "--dir", DIR, "--appendonly", "yes", "--appendfsync", "everysec",
        "--save", "", "--enable-debug-command", "yes", "--auto-aof-rewrite-percentage", "0", "--ignore-warnings", "ARM64-COW-BUG", *flags,
    ])
    for _ in range(PATIENCE):
        try:
            return Redis().socket.close()
        except OSError:
            time.sleep(0.02)
    raise RuntimeError("the server does not answer")


def main():
    start()
    held = Keys(len(CLIENTS) * sum(SIZE - i for i in range(PIECES)))
    clients = [Client(held, name) for name in CLIENTS]
    for client in clients:
        held.add(client.name, client.once, client.check)
    held.change = lambda: Redis().one("APPEND", clients[0].key(1), "x")
    saver = Saver(held)
    held.add("saver", saver.once)
    held.workers[-1].saver = saver
    held.serve()


if __name__ == "__main__":
    main()
