"""One program for both of E2B's clients for Python. The argument "async" takes the
asynchronous one; otherwise what the synchronous one is asked for runs in a thread, and
is awaited in the same way."""

import asyncio
import inspect
import sys

import e2b

ASYNC = sys.argv[1:] == ["async"]
# What both clients answer at once.
AT_ONCE = {"download_url", "upload_url", "get_host"}


class Threaded:
    """An object of the synchronous client, whose methods can be awaited."""

    def __init__(self, of):
        self.of = of

    def __getattr__(self, name):
        value = getattr(self.of, name)
        if not callable(value) or inspect.isclass(value):
            return wrapped(value)
        if name in AT_ONCE:
            return value

        async def call(*args, **kw):
            return wrapped(await asyncio.to_thread(value, *args, **kw))

        return call


def wrapped(value):
    """Objects of the client that have methods to await."""
    module = type(value).__module__
    return Threaded(value) if module.startswith("e2b.sandbox_sync") else value


Sandbox = e2b.AsyncSandbox if ASYNC else Threaded(e2b.Sandbox)


async def terminal(sandbox, hear, rows, cols, **kw):
    """Makes a terminal; what it shows is heard while the second is awaited."""
    size = e2b.PtySize(rows=rows, cols=cols)
    if ASYNC:
        handle = await sandbox.pty.create(size, hear, **kw)
        return handle, handle.wait
    handle = await sandbox.pty.create(size, **kw)
    return handle, lambda: handle.wait(on_pty=hear)


async def again(sandbox, pid, hear, **kw):
    """Takes a terminal up again."""
    if ASYNC:
        handle = await sandbox.pty.connect(pid, hear, **kw)
        return handle, handle.wait
    handle = await sandbox.pty.connect(pid, **kw)
    return handle, lambda: handle.wait(on_pty=hear)


class Watched:
    """A folder that is watched: one client is told, the other one asks."""

    def __init__(self):
        self.events, self.heard, self.ended = [], asyncio.Event(), asyncio.Event()
        self.error = None

    @classmethod
    async def on(cls, sandbox, path, timeout=60, **kw):
        self = cls()
        if ASYNC:
            self.handle = await sandbox.files.watch_dir(path, self.hear, self.over, timeout=timeout, **kw)
        else:
            self.handle = await sandbox.files.watch_dir(path, **kw)
        return self

    def hear(self, event):
        self.events.append(event)
        self.heard.set()

    def over(self, error):
        self.error = error
        self.ended.set()

    async def until(self, type, name):
        async with asyncio.timeout(30):
            while True:
                for e in self.events:
                    if (e.type.value, e.name) == (type, name):
                        return e
                if ASYNC:
                    self.heard.clear()
                    await self.heard.wait()
                else:
                    self.events += await self.handle.get_new_events()

    async def stop(self):
        await self.handle.stop()


async def raises(kind, awaitable):
    """Wants an error of a kind, and returns it."""
    try:
        got = await awaitable
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}, but {got!r}")


def run(main):
    asyncio.run(main())
