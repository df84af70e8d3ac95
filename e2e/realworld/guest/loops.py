"""asyncio at work: one loop in a thread with everything that it waits for: streams over TCP
and a unix socket, a subprocess, timers, a queue, a signal, threads."""
import asyncio
import os
import signal
import sys
import threading
import time

import work

STREAMS = 20  # connections to the server of the same loop


class Numbered:
    """A connection on which each line is answered by its number and itself."""

    @staticmethod
    async def serve(reader, writer):
        n = 0
        while line := await reader.readline():
            n += 1
            writer.write(b"%d %s" % (n, line))
            await writer.drain()

    def __init__(self, held, reader, writer):
        self.held, self.reader, self.writer, self.n = held, reader, writer, 0

    async def ask(self, size):
        self.n += 1
        body = work.content("asyncio", id(self), self.n, size).hex().encode()
        self.writer.write(body + b"\n")
        await self.writer.drain()
        got = await self.reader.readline()
        self.held.same("an answer", got, b"%d %s\n" % (self.n, body))


class Loops(work.Work):
    def __init__(self, data):
        super().__init__(0)
        self.data = os.path.abspath(data)
        os.makedirs(self.data, exist_ok=True)
        self.loop, self.signals, self.latest = asyncio.new_event_loop(), 0, time.monotonic()
        ready = threading.Event()
        self.loop.call_soon(lambda: self.loop.create_task(self.prepare()).add_done_callback(lambda t: (t.result(), ready.set())))
        # Signals reach the loop of the main thread only: the answers come from another.
        threading.Thread(target=self.begin, args=(ready,), daemon=True).start()

    def begin(self, ready):
        ready.wait()
        for name, once in (("tcp", self.tcp), ("unix", self.unix), ("pipe", self.pipe), ("timers", self.timers),
                           ("queue", self.queue), ("signal", self.signal), ("threads", self.threads)):
            self.add(name, lambda w, once=once: asyncio.run_coroutine_threadsafe(once(w), self.loop).result())
        self.serve()

    async def prepare(self):
        path = f"{self.data}/socket"
        self.servers = [await asyncio.start_server(Numbered.serve, "127.0.0.1", 8081, limit=1 << 20),
                        await asyncio.start_unix_server(Numbered.serve, path, limit=1 << 20)]
        self.streams = [Numbered(self, *await asyncio.open_connection("127.0.0.1", 8081, limit=1 << 20)) for _ in range(STREAMS)]
        self.local = Numbered(self, *await asyncio.open_unix_connection(path, limit=1 << 20))
        self.cat = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        self.came = asyncio.Event()
        self.loop.add_signal_handler(signal.SIGUSR1, self.signalled)

    async def tcp(self, worker):
        await asyncio.gather(*(s.ask(worker.random.randrange(1, 3000)) for s in self.streams))

    async def unix(self, worker):
        await self.local.ask(worker.random.randrange(1, 100_000))

    async def pipe(self, worker):
        body = work.content("pipe", 0, worker.rounds, 30_000)
        self.cat.stdin.write(body)
        await self.cat.stdin.drain()
        self.same("what cat says", await self.cat.stdout.readexactly(len(body)), body)

    async def timers(self, worker):
        """Timers end in the order of their times, and never early."""
        began, order = time.monotonic(), []

        async def one(delay):
            await asyncio.sleep(delay)
            order.append(delay)

        delays = [worker.random.randrange(2, 12) / 100 for _ in range(5)]
        await asyncio.gather(*map(one, delays))
        now = time.monotonic()
        if began < self.latest or now - began < max(delays) - 0.001:
            self.wrong(f"timers: began at {began} after {self.latest}, over at {now}; they were {delays}")
        self.latest = now
        if sorted(order) != sorted(delays):
            self.wrong(f"timers: {delays} were set, {order} came")

    async def queue(self, worker):
        q, got = asyncio.Queue(3), []

        async def put():
            for n in range(200):
                await q.put(n)

        async def get():
            while len(got) < 200:
                got.append(await q.get())

        await asyncio.wait_for(asyncio.gather(put(), get()), 3600)
        if got != list(range(200)):
            self.wrong(f"queue: {got}")

    def signalled(self):
        self.signals += 1
        self.came.set()

    async def signal(self, worker):
        self.came.clear()
        os.kill(os.getpid(), signal.SIGUSR1)
        await self.came.wait()
        if self.signals != worker.rounds + 1:
            self.wrong(f"signals: {self.signals} came, want {worker.rounds + 1}")

    async def threads(self, worker):
        got = await asyncio.gather(*(asyncio.to_thread(work.content, "threads", n, worker.rounds, 5000) for n in range(4)))
        self.same("what threads made", b"".join(got), b"".join(work.content("threads", n, worker.rounds, 5000) for n in range(4)))

    def run_loop(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


Loops(sys.argv[1]).run_loop()
