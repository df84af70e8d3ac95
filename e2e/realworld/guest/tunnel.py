"""A process with a network device of its own, as user-mode VPNs have one: it cannot be saved.
It answers each byte."""
import ctypes
import fcntl
import os
import struct

import work

CLONE_NEWUSER, CLONE_NEWNET, TUNSETIFF, IFF_TUN = 0x10000000, 0x40000000, 0x400454CA, 1


class Tunnel(work.Work):
    def __init__(self):
        super().__init__(0)
        (r, self.ask), (self.answer, w) = os.pipe(), os.pipe()
        self.job = os.fork()
        if self.job == 0:
            try:
                if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0:
                    raise OSError(ctypes.get_errno(), "unshare")
                tunnel = os.open("/dev/net/tun", os.O_RDWR)
                fcntl.ioctl(tunnel, TUNSETIFF, struct.pack("16sH22x", b"tun0", IFF_TUN))
                while True:
                    os.write(w, os.read(r, 1))
            finally:
                os._exit(1)
        os.close(w)
        self.add("tunnel", self.once)

    def state(self):
        return {**super().state(), "job": self.job}

    def once(self, _):
        os.write(self.ask, b"x")
        if os.read(self.answer, 1) != b"x":
            raise RuntimeError("the process with the device has ended")


Tunnel().serve()
