"""Calls that wait, and nothing comes: none of them notices that it was saved. Each is made by
a process of its own, which says so where it returns. As in Linux, where a process was
stopped, epoll_wait, semtimedop and sigtimedwait with a time limit return EINTR: they are not
here."""
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time

import work

libc = ctypes.CDLL(None, use_errno=True)
LONG = 1 << 20  # seconds


def timespec(seconds):
    return struct.pack("qq", seconds, 0)


def semop():
    return libc.semop(libc.semget(0, 1, 0o1600), struct.pack("hhh", 0, -1, 0), 1)


def msgrcv():
    return libc.msgrcv(libc.msgget(0, 0o1600), ctypes.create_string_buffer(16), 8, 0, 0)


def msgsnd():
    queue = libc.msgget(0, 0o1600)
    while libc.msgsnd(queue, struct.pack("q", 1) + bytes(4096), 4096, 0) == 0:
        pass
    return -1


def epoll():
    e = select.epoll()
    return libc.epoll_wait(e.fileno(), ctypes.create_string_buffer(12), 1, -1)


def poll():
    return libc.poll(None, 0, -1)


def poll_for_long():
    return libc.poll(None, 0, 1_000_000_000)


def ppoll():
    return libc.ppoll(None, 0, timespec(LONG), None)


def pselect():
    return libc.pselect(0, None, None, None, timespec(LONG), None)


def sigsuspend():
    return libc.sigsuspend(bytes(128))


def nanosleep():
    return libc.nanosleep(timespec(LONG), None)


def futex():
    return libc.syscall(202, ctypes.create_string_buffer(8), 0, 0, None, None, 0)


def futex_for_long():
    return libc.syscall(202, ctypes.create_string_buffer(8), 0, 0, timespec(LONG), None, 0)


def wait4():
    if os.fork() == 0:
        signal.pause()
    return libc.wait4(-1, None, 0, None)


def pipe():
    r, w = os.pipe()
    return libc.read(r, ctypes.create_string_buffer(1), 1)


def full_pipe():
    r, w = os.pipe()
    while libc.write(w, bytes(65536), 65536) == 65536:
        pass
    return -1


def fifo():
    os.mkfifo("/tmp/read")
    return libc.open(b"/tmp/read", os.O_RDONLY)


def fifo_written():
    os.mkfifo("/tmp/written")
    return libc.open(b"/tmp/written", os.O_WRONLY)


def eventfd():
    return libc.read(os.eventfd(0), ctypes.create_string_buffer(8), 8)


def inotify():
    return libc.read(libc.inotify_init1(0), ctypes.create_string_buffer(100), 100)


def accept():
    s = socket.create_server(("127.0.0.1", 0))
    return libc.accept(s.fileno(), None, None)


def recv():
    a, b = socket.socketpair()
    return libc.recv(a.fileno(), ctypes.create_string_buffer(1), 1, 0)


def tcp_recv():
    server = socket.create_server(("127.0.0.1", 0))
    c = socket.create_connection(server.getsockname())
    return libc.recv(c.fileno(), ctypes.create_string_buffer(1), 1, 0)


def recv_for_long():
    a, b = socket.socketpair()
    a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", LONG, 0))
    return libc.recv(a.fileno(), ctypes.create_string_buffer(1), 1, 0)


def udp_recv():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    return libc.recv(s.fileno(), ctypes.create_string_buffer(1), 1, 0)


def flock():
    a, b = open("/tmp/flock", "w"), open("/tmp/flock", "w")
    fcntl.flock(a, fcntl.LOCK_EX)
    return libc.flock(b.fileno(), fcntl.LOCK_EX)


def lockf():
    f = open("/tmp/lockf", "w")
    r, w = os.pipe()
    if os.fork() == 0:
        fcntl.lockf(f, fcntl.LOCK_EX)
        os.write(w, b"x")
        signal.pause()
    os.read(r, 1)
    return libc.fcntl(f.fileno(), fcntl.F_SETLKW, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))


def splice():
    r, w = os.pipe()
    r2, w2 = os.pipe()
    return libc.splice(r, None, w2, None, 4096, 0)


def terminal():
    a, b = os.openpty()
    return libc.read(b, ctypes.create_string_buffer(1), 1)


CALLS = (semop, msgrcv, msgsnd, epoll, poll, poll_for_long, ppoll, pselect, sigsuspend,
         nanosleep, futex, futex_for_long, wait4, pipe, full_pipe, fifo, fifo_written, eventfd, inotify, accept, recv, tcp_recv, recv_for_long,
         udp_recv, flock, lockf, splice, terminal)


def waits(call):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            got = call()
            said = f"returns {got}, {errno.errorcode.get(ctypes.get_errno())}"
        except BaseException as e:
            said = repr(e)
        os.write(w, f"{call.__name__}: {said}".encode())
        os._exit(1)
    os.close(w)
    return r


def main():
    held = work.Work(0)
    watched = [waits(c) for c in CALLS]

    def once(_):
        for fd in select.select(watched, [], [], 0.02)[0]:
            watched.remove(fd)
            held.wrong(os.read(fd, 1000).decode())

    held.add("waits", once)
    held.serve()


main()
