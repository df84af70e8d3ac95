"""Memory that is filled once, and nothing that works: held.py MIB. GET /check compares all
of it; any other path is answered at once."""
import sys

import numpy as np

import work

PIECE = 1 << 17  # 64-bit numbers in a MiB
WANT = np.arange(PIECE, dtype=np.uint64)


class Held(work.Work):
    def __init__(self, mib):
        super().__init__(mib << 20)
        self.array = np.empty((mib, PIECE), dtype=np.uint64)
        for i in range(mib):
            np.multiply(WANT, np.uint64(2 * i + 1), out=self.array[i])

    def spoil(self):
        self.array[1, 2] ^= np.uint64(1)

    def check(self):
        for i in range(len(self.array)):
            if not np.array_equal(self.array[i], WANT * np.uint64(2 * i + 1)):
                self.wrong(f"MiB {i} has changed")
        return self.state()


Held(int(sys.argv[1])).serve()
