"""sqlite writing: two processes, one with a write-ahead log and one with a rollback journal,
write rows, and acknowledge each transaction when it is committed. Every row that was
acknowledged is there, and the database is whole.

ledger.py DIR is the program; ledger.py DIR MODE one of the two writers.
"""
import hashlib
import os
import random
import sqlite3
import subprocess
import sys

import work

MODES = ("WAL", "DELETE")  # of the journal
LOOK = 100  # transactions, after which the acknowledged rows are looked for


def digest(mode, n):
    return hashlib.sha256(f"{mode}/{n}".encode()).hexdigest() * 4


def database(dir, mode):
    db = sqlite3.connect(f"{dir}/{mode}.db", timeout=60, isolation_level=None, check_same_thread=False)
    db.execute(f"PRAGMA journal_mode={mode}").fetchall()
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA wal_autocheckpoint=100")
    return db


def write(dir, mode):
    db, chance, n = database(dir, mode), random.Random(mode), 0
    while True:
        db.execute("BEGIN IMMEDIATE")
        for _ in range(chance.randrange(1, 8)):
            n += 1
            db.execute("INSERT INTO row VALUES (?, ?)", (n, digest(mode, n)))
        db.execute("COMMIT")
        print(n, flush=True)


class Book:
    """What one writer has acknowledged."""

    def __init__(self, held, dir, mode):
        self.held, self.mode, self.rows, self.db = held, mode, 0, database(dir, mode)
        self.db.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        self.writer = subprocess.Popen([sys.executable, sys.argv[0], dir, mode], stdout=subprocess.PIPE, text=True)

    def once(self, worker):
        said = self.writer.stdout.readline()
        if not said:
            raise RuntimeError(f"the writer has ended: {self.writer.wait()}")
        n = int(said)
        if not self.rows < n <= self.rows + 7:
            self.held.wrong(f"{self.mode}: after row {self.rows} row {n} is acknowledged")
        self.rows = n
        if worker.rounds % LOOK == 0:
            self.look(max(0, n - 1000))

    def look(self, after):
        found = self.db.execute("SELECT id, body FROM row WHERE id > ? ORDER BY id", (after,)).fetchall()
        if len(found) < self.rows - after:
            self.held.wrong(f"{self.mode}: {len(found)} rows are there after {after}, {self.rows} are acknowledged")
        for want, (n, body) in enumerate(found, after + 1):
            if n != want or body != digest(self.mode, n):
                self.held.wrong(f"{self.mode}: row {n}, {body[:20]}, is where row {want} belongs")
                return

    def check(self, _):
        self.look(0)
        said = self.db.execute("PRAGMA integrity_check").fetchall()
        if said != [("ok",)]:
            self.held.wrong(f"{self.mode}: integrity_check says {said[:5]}")


def main():
    dir = os.path.abspath(sys.argv[1])
    os.makedirs(dir, exist_ok=True)
    held = work.Work(0)
    for mode in MODES:
        book = Book(held, dir, mode)
        held.add(mode, book.once, book.check)
    held.serve()


if len(sys.argv) == 3:
    write(*sys.argv[1:])
else:
    main()
