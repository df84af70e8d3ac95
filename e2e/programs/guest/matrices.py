"""numpy under work: large arrays that are written in place, in anonymous memory and in a
file that is mapped shared, and products whose sums are known."""
import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")
import numpy as np

import work

DIR = sys.argv[1]
ROWS, COLUMNS = 72, 32768  # a row of 64-bit numbers is 256 KiB
MAPPED = 40  # rows in the file
SIDE = 192  # of the matrices that are multiplied

STEP = np.uint64(0x9E3779B97F4A7C15)
RAMP = np.arange(1, COLUMNS + 1, dtype=np.uint64) * STEP


def row(mark, piece, round, out):
    """The numbers of a row: splitmix64 from a seed."""
    seed = np.uint64(int.from_bytes(work.content(mark, piece, round, 8), "little"))
    np.add(RAMP, seed, out=out)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        out ^= out >> np.uint64(shift)
        out *= np.uint64(factor)
    out ^= out >> np.uint64(31)


class Rows:
    """An array and, beside it, what each of its rows has to hold."""

    def __init__(self, held, name, array):
        self.held, self.name, self.array = held, name, array
        self.written = [("none", 0)] * len(array)
        self.want = np.empty(COLUMNS, dtype=np.uint64)
        for i in range(len(array)):
            row("none", f"{name}{i}", 0, array[i])

    def compare(self, i):
        mark, round = self.written[i]
        row(mark, f"{self.name}{i}", round, self.want)
        if not np.array_equal(self.array[i], self.want):
            self.held.same(f"{self.name}, row {i} of round {round}, mark {mark}", self.array[i].tobytes(), self.want.tobytes())

    def once(self, worker):
        i = worker.random.randrange(len(self.array))
        self.compare(i)
        self.written[i] = (self.held.mark, worker.rounds)
        row(self.held.mark, f"{self.name}{i}", worker.rounds, self.array[i])

    def check(self, _):
        for i in range(len(self.array)):
            self.compare(i)


class Products:
    """Whole numbers small enough that no product of these matrices is rounded."""

    def __init__(self, held):
        self.held, self.turned = held, 0
        self.a, self.b = np.empty((SIDE, SIDE)), np.empty((SIDE, SIDE))
        self.out = np.empty((SIDE, SIDE))
        # One that is turned in place again and again: after an even number of times it
        # is what it was.
        self.square = np.arange(SIDE * SIDE, dtype=np.int64).reshape(SIDE, SIDE).copy()

    def once(self, worker):
        numbers = np.random.default_rng(worker.random.getrandbits(32))
        self.a[:] = numbers.integers(-1000, 1000, self.a.shape)
        self.b[:] = numbers.integers(-1000, 1000, self.b.shape)
        np.matmul(self.a, self.b, out=self.out)
        if not np.array_equal(self.out.sum(axis=0), self.a.sum(axis=0) @ self.b):
            self.held.wrong(f"products, round {worker.rounds}: the columns have other sums")
        if not np.array_equal(self.out.sum(axis=1), self.a @ self.b.sum(axis=1)):
            self.held.wrong(f"products, round {worker.rounds}: the rows have other sums")
        self.square[:] = self.square.T.copy()
        self.turned += 1
        self.check(worker)

    def check(self, worker):
        want = np.arange(SIDE * SIDE, dtype=np.int64).reshape(SIDE, SIDE)
        if not np.array_equal(self.square, want.T if self.turned % 2 else want):
            self.held.wrong(f"products, round {worker.rounds}: the square is another")


def main():
    file = np.memmap(f"{DIR}/mapped", dtype=np.uint64, mode="w+", shape=(MAPPED, COLUMNS))
    held = work.Work((ROWS + MAPPED) * COLUMNS * 8)
    memory, mapped = Rows(held, "memory", np.empty((ROWS, COLUMNS), dtype=np.uint64)), Rows(held, "mapped", file)
    products = Products(held)
    held.add("memory", memory.once, memory.check)
    held.add("mapped", mapped.once, mapped.check)
    held.add("products", products.once, products.check)

    def change():
        memory.array[1, 2] ^= np.uint64(1)
    held.change = change
    held.serve()


main()
