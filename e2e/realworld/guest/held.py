"""Everything else that a process may hold: of each kind one, used again and again."""
import ctypes
import errno
import fcntl
import mmap
import multiprocessing
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback

import work

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000


def must(n, what):
    if n < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return n


def child(f):
    """A process that runs f, and ends with 1 where that fails."""
    pid = os.fork()
    if pid == 0:
        try:
            f()
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return pid


def expect(got, want):
    if got != want:
        raise ValueError(f"got {str(got)[:200]}, want {str(want)[:200]}")


class Held:
    """Each method gives a worker: a generator, of which each step is a use."""

    def __init__(self, data):
        self.data = data

    def path(self, name):
        return os.path.join(self.data, name)

    def datagrams(self):
        a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        a.bind(("127.0.0.1", 0))
        b.connect(a.getsockname())
        sent = []
        for n in range(1 << 30):
            sent.append(work.content("udp", n, 0, 1000))
            b.send(sent[-1])
            if len(sent) > 5:  # five are always on the way
                expect(a.recv(2000), sent.pop(0))
            yield

    def backlog(self):
        """A connection that nobody has accepted yet, with bytes in it, half closed."""
        server = socket.create_server(("127.0.0.1", 0))
        for n in range(1 << 30):
            c = socket.create_connection(server.getsockname())
            c.sendall(b"%d" % n)
            c.shutdown(socket.SHUT_WR)
            yield
            peer, _ = server.accept()
            expect((peer.recv(100), peer.recv(100)), (b"%d" % n, b""))
            peer.sendall(b"answer")
            yield
            peer.close()
            expect((c.recv(100), c.recv(100)), (b"answer", b""))
            c.close()

    def full(self):
        """A TCP connection over IPv6 whose buffers are full in both directions."""
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
        a = socket.create_connection(server.getsockname()[:2])
        b, _ = server.accept()
        sent, got, piece = [0, 0], [0, 0], 4096
        ends = (a, b)
        for s in ends:
            s.setblocking(False)
        for n in range(1 << 30):
            for i in (0, 1):
                try:
                    while True:
                        at = sent[i] % 65536
                        sent[i] += ends[i].send(CYCLE[at:at + piece])
                except BlockingIOError:
                    pass
            yield
            for i in (0, 1):
                try:
                    for _ in range(20):
                        body = ends[1 - i].recv(piece)
                        at = got[i] % 65536
                        expect(body, CYCLE[at:at + len(body)])
                        got[i] += len(body)
                except BlockingIOError:
                    pass

    def rights(self):
        """Descriptors that lie in a socket."""
        a, b = socket.socketpair()
        for n in range(1 << 30):
            r, w = os.pipe()
            os.write(w, b"%d" % n)
            os.close(w)
            socket.send_fds(a, [b"x"], [r])
            os.close(r)
            yield
            _, fds, _, _ = socket.recv_fds(b, 1, 1)
            expect(os.read(fds[0], 100), b"%d" % n)
            os.close(fds[0])

    def locks(self):
        """A lock that another process has, and one that it waits for."""
        mine, theirs = open(self.path("mine"), "w"), open(self.path("theirs"), "w")
        fcntl.lockf(mine, fcntl.LOCK_EX)

        def other():
            own = open(self.path("theirs"), "w")
            fcntl.flock(own, fcntl.LOCK_EX)
            fcntl.lockf(open(self.path("mine"), "w"), fcntl.LOCK_EX)

        pid = child(other)
        for _ in range(1 << 30):
            time.sleep(0.02)
            yield
            expect(os.waitpid(pid, os.WNOHANG), (0, 0))
            try:
                fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
                raise ValueError("the lock that another has was given")
            except BlockingIOError:
                pass

    def shared(self):
        """Memory that two processes share, of a file without a name and of SysV; a semaphore
        and a queue of messages between them."""
        fd = os.memfd_create("held")
        os.ftruncate(fd, 1 << 20)
        memory = mmap.mmap(fd, 1 << 20)
        shm = must(libc.shmget(0, 65536, 0o1600), "shmget")
        libc.shmat.restype = ctypes.c_void_p
        at = libc.shmat(shm, None, 0)
        sem = must(libc.semget(0, 1, 0o1600), "semget")
        queue = must(libc.msgget(0, 0o1600), "msgget")

        def other():
            mine = mmap.mmap(fd, 1 << 20)
            for n in range(1 << 30):
                must(libc.semop(sem, struct.pack("hhh", 0, -1, 0), 1), "semop")
                expect(ctypes.string_at(at, 8), struct.pack("q", n))
                mine[n % 1000 * 8:n % 1000 * 8 + 8] = struct.pack("q", n)
                must(libc.msgsnd(queue, struct.pack("qq", 1, n), 8, 0), "msgsnd")

        pid = child(other)
        for n in range(1 << 30):
            ctypes.memmove(at, struct.pack("q", n), 8)
            must(libc.semop(sem, struct.pack("hhh", 0, 1, 0), 1), "semop")
            got = ctypes.create_string_buffer(16)
            while libc.msgrcv(queue, got, 8, 0, 0o4000) < 0:  # without waiting
                expect((ctypes.get_errno(), os.waitpid(pid, os.WNOHANG)), (errno.ENOMSG, (0, 0)))
                yield
            expect(struct.unpack("qq", got.raw)[1], n)
            expect(memory[n % 1000 * 8:n % 1000 * 8 + 8], struct.pack("q", n))

    def mail(self):
        """Processes of multiprocessing, with its locks and queues."""
        there, back, lock = multiprocessing.Queue(), multiprocessing.Queue(), multiprocessing.Lock()

        def other():
            while True:
                body = there.get()
                with lock:
                    back.put(body[::-1])

        p = multiprocessing.Process(target=other, daemon=True)
        p.start()
        for n in range(1 << 30):
            body = work.content("mail", n, 0, 3000)
            there.put(body)
            yield
            with lock:
                pass
            expect(back.get(), body[::-1])

    def children(self):
        """Processes that come and go, one that is stopped, and one that nobody has waited for."""
        stopped = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for n in range(1 << 30):
            stopped.send_signal(signal.SIGSTOP)
            os.waitpid(stopped.pid, os.WUNTRACED)
            dead = child(lambda: os._exit(n % 100))
            yield
            expect(open(f"/proc/{stopped.pid}/stat").read().split()[2], "T")
            stopped.send_signal(signal.SIGCONT)
            stopped.stdin.write(b"%d\n" % n)
            stopped.stdin.flush()
            expect(stopped.stdout.readline(), b"%d\n" % n)
            expect(os.waitstatus_to_exitcode(os.waitpid(dead, 0)[1]), n % 100)
            expect(subprocess.run(["sh", "-c", "exit 7"]).returncode, 7)

    def traced(self):
        """A process that is traced, and stands."""
        def other():
            os.closerange(3, 4096)  # others are at work already, and close what they have
            libc.ptrace(0, 0, 0, 0)  # trace me
            while True:
                os.kill(os.getpid(), signal.SIGUSR1)

        pid = child(other)
        for _ in range(1 << 30):
            _, status = os.waitpid(pid, 0)
            expect(os.WIFSTOPPED(status) and os.WSTOPSIG(status), signal.SIGUSR1)
            yield
            must(libc.ptrace(7, pid, 0, 0), "ptrace")  # go on, without the signal

    def apart(self):
        """A process in namespaces of its own, with mounts of its own, in a folder that is gone."""
        r, w = os.pipe()
        back, answer = os.pipe()

        def other():
            must(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
            os.makedirs(self.path("mount"), exist_ok=True)
            must(libc.mount(b"none", self.path("mount").encode(), b"tmpfs", 0, None), "mount")
            f = open(self.path("mount/file"), "w+b")
            os.makedirs(self.path("gone"))
            os.chdir(self.path("gone"))
            os.rmdir(self.path("gone"))
            while True:
                f.write(os.read(r, 8))
                f.flush()
                with open(self.path("mount/file"), "rb") as again:
                    os.write(answer, struct.pack("q", len(again.read())))

        pid = child(other)
        for n in range(1, 1 << 30):
            os.write(w, struct.pack("q", n))
            yield
            expect(select.select([back], [], [], 60)[0], [back])
            expect((os.read(back, 8), os.waitpid(pid, os.WNOHANG)), (struct.pack("q", 8 * n), (0, 0)))
            expect(os.path.exists(self.path("mount/file")), False)

    def waits(self):
        """Descriptors that are waited for: an event counter, a timer, a process, in one epoll
        in another."""
        event, inner, outer = os.eventfd(0), select.epoll(), select.epoll()
        timer = must(libc.timerfd_create(time.CLOCK_MONOTONIC, 0), "timerfd_create")
        must(libc.timerfd_settime(timer, 0, struct.pack("qqqq", 0, 5_000_000, 0, 5_000_000), None), "timerfd_settime")
        sleeper = child(signal.pause)
        process = os.pidfd_open(sleeper)
        for fd in (event, timer, process):
            inner.register(fd, select.EPOLLIN)
        outer.register(inner.fileno(), select.EPOLLIN)
        for n in range(1, 1 << 30):
            os.eventfd_write(event, n)
            yield
            expect([fd for fd, _ in outer.poll(60)], [inner.fileno()])
            expect(os.eventfd_read(event), n)
            os.read(timer, 8)
            expect([fd for fd, _ in inner.poll(0) if fd == process], [])

    def kernel(self):
        """A socket on which the kernel answers."""
        link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        for n in range(1 << 30):
            link.send(struct.pack("IHHII", 32, 18, 1, n, 0) + struct.pack("BBHiII", 0, 0, 0, 1, 0, 0))  # what link 1 is
            yield
            expect(struct.unpack("HHI", link.recv(65536)[4:12])[::2], (16, n))

    def unnamed(self):
        """Files without a name, one of them mapped and full of holes."""
        fd = os.open(self.path("second"), os.O_CREAT | os.O_RDWR)
        os.unlink(self.path("second"))
        f = open(self.path("unlinked"), "w+b")
        os.unlink(self.path("unlinked"))
        f.truncate(1 << 40)
        memory, place = mmap.mmap(f.fileno(), 1 << 30), os.open(self.data, os.O_PATH)
        for n in range(1 << 30):
            at = n * 1_000_003 % (1 << 30) & ~4095
            memory[at:at + 8] = struct.pack("q", n)
            os.pwrite(fd, struct.pack("q", n), n % 1000 * 8)
            yield
            expect(os.pread(f.fileno(), 8, at), struct.pack("q", n))
            expect(os.pread(fd, 8, n % 1000 * 8), struct.pack("q", n))
            os.stat(".", dir_fd=place)


CYCLE = work.content("cycle", 0, 0, 65536) * 2
KINDS = ("datagrams", "backlog", "full", "rights", "locks", "shared", "mail", "children", "traced", "apart", "waits", "kernel", "unnamed")


def main():
    data = os.path.abspath(sys.argv[1])
    os.makedirs(data, exist_ok=True)
    held, everything = work.Work(0), Held(data)
    multiprocessing.set_start_method("fork")
    for kind in sys.argv[2:] or KINDS:
        uses = getattr(everything, kind)()
        if kind != "traced":  # its thread is the one that may
            next(uses)  # opened in turn, while there is one thread
        held.add(kind, lambda _, uses=uses: next(uses))
    held.serve()


main()
