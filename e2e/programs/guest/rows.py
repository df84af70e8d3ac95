"""sqlite under work: a database in WAL mode, read by mapping it, that two processes write.
Each has rows of its own, and remembers what must be in them; they move money between
accounts, whose sum stays.

rows.py DIR is the program; rows.py DIR NAME one of the two writers. A writer is told a line
on its standard input (check, rounds, or mark NAME) and answers with one: its rounds and
what it found wrong.
"""
import json
import sqlite3
import subprocess
import sys
import threading

import work

PIECES, SIZE = 600, 6000  # of each writer; bytes
ACCOUNTS, BALANCE = 50, 1000
WRITERS = ("left", "right")


def open_database(dir):
    db = sqlite3.connect(f"{dir}/rows.db", timeout=60, isolation_level=None, check_same_thread=False)
    for line in ("journal_mode=WAL", "synchronous=NORMAL", "mmap_size=67108864", "wal_autocheckpoint=400", "cache_size=-2000"):
        db.execute(f"PRAGMA {line}").fetchall()
    return db


def create(dir):
    db = open_database(dir)
    db.execute("CREATE TABLE piece (writer TEXT, id INTEGER, body BLOB, PRIMARY KEY (writer, id))")
    db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)")
    db.executemany("INSERT INTO account VALUES (?, ?)", [(i, BALANCE) for i in range(ACCOUNTS)])
    db.close()


class Writer:
    def __init__(self, dir, name):
        self.db, self.name, self.held = open_database(dir), name, work.Work(0)
        self.written = {i: ("none", 0) for i in range(PIECES)}
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany("INSERT INTO piece VALUES (?, ?, ?)", [(name, i, self.content(i)) for i in range(PIECES)])
        self.db.execute("COMMIT")

    def content(self, i):
        mark, round = self.written[i]
        return work.content(mark, f"{self.name}{i}", round, SIZE - i)

    def compare(self, i):
        found = self.db.execute("SELECT body FROM piece WHERE writer = ? AND id = ?", (self.name, i)).fetchall()
        body = found[0][0] if found else b""
        self.held.same(f"writer {self.name}, row {i} of round and mark {self.written[i]}", body, self.content(i))

    def once(self, worker):
        self.db.execute("BEGIN IMMEDIATE")
        for i in worker.random.sample(range(PIECES), 4):
            self.compare(i)
            self.written[i] = (self.held.mark, worker.rounds)
            self.db.execute("UPDATE piece SET body = ? WHERE writer = ? AND id = ?", (self.content(i), self.name, i))
        a, b = worker.random.sample(range(ACCOUNTS), 2)
        self.db.execute("UPDATE account SET balance = balance - 1 WHERE id = ?", (a,))
        self.db.execute("UPDATE account SET balance = balance + 1 WHERE id = ?", (b,))
        self.db.execute("COMMIT")
        if worker.rounds % 500 == 499:
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def check(self, _):
        for i in range(PIECES):
            self.compare(i)

    def serve(self):
        self.held.add(self.name, self.once, self.check)
        threading.Thread(target=self.held.run, args=(self.held.workers[0],), daemon=True).start()
        print("ready", flush=True)
        for line in sys.stdin:
            verb, _, name = line.strip().partition(" ")
            state = self.held.set(name) if verb == "mark" else self.held.check() if verb == "check" else self.held.state()
            print(json.dumps({"rounds": state["rounds"][self.name], "broken": state["broken"]}), flush=True)


class Rows(work.Work):
    """The database as a whole. Its workers are the two processes."""

    def __init__(self, dir):
        super().__init__(len(WRITERS) * sum(SIZE - i for i in range(PIECES)))
        self.db, self.asking, self.counts, self.writers = open_database(dir), threading.Lock(), {}, {}
        for name in WRITERS:
            self.writers[name] = subprocess.Popen(
                [sys.executable, sys.argv[0], dir, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if self.writers[name].stdout.readline() != "ready\n":
                raise RuntimeError(f"the writer {name} does not start")

    def ask(self, line):
        for name, writer in self.writers.items():
            writer.stdin.write(line + "\n")
            writer.stdin.flush()
        for name, writer in self.writers.items():
            said = writer.stdout.readline()
            if not said:
                self.wrong(f"the writer {name} has ended: {writer.wait()}")
                continue
            answer = json.loads(said)
            self.counts[name] = answer["rounds"]
            for what in answer["broken"]:
                if what not in self.broken:
                    self.wrong(what)

    def told(self):
        return {**super().state(), "rounds": dict(self.counts)}

    def state(self):
        with self.asking:
            self.ask("rounds")
            return self.told()

    def check(self):
        with self.asking:
            self.ask("check")
            for query, want in (("PRAGMA integrity_check", "ok"), ("SELECT sum(balance) FROM account", ACCOUNTS * BALANCE),
                                ("SELECT count(*) FROM piece", len(WRITERS) * PIECES)):
                got = self.db.execute(query).fetchall()
                if got != [(want,)]:
                    self.wrong(f"{query}: {got[:5]}, want {want}")
            return self.told()

    def spoil(self):
        self.db.execute("UPDATE piece SET body = zeroblob(length(body)) WHERE writer = ? AND id = 1", WRITERS[:1])

    def set(self, name):
        with self.asking:
            self.ask(f"mark {name}")
            self.marks.append({"name": name, "rounds": dict(self.counts)})
            return self.told()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        Writer(*sys.argv[1:]).serve()
    else:
        create(sys.argv[1])
        Rows(sys.argv[1]).serve()
