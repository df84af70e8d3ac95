"""Watching directories by polling, and by a stream; a disk that is full while it is written to."""

import asyncio
import os
import time

from e2b import (
    AsyncSandbox,
    FileNotFoundException,
    FilesystemEventType,
    InvalidArgumentException,
    NotEnoughSpaceException,
    Sandbox,
    SandboxException,
)

sandbox = Sandbox.create("base", timeout=300)
files = sandbox.files


def raises(kind, call, *args, **kw):
    try:
        call(*args, **kw)
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def until(watch, kind, name):
    """Polls until there is such an event, and returns it."""
    end, seen = time.monotonic() + 20, []
    while time.monotonic() < end:
        for e in watch.get_new_events():
            seen.append(e)
            if (e.type, e.name) == (kind, name):
                return e
    raise AssertionError(f"no {kind} of {name} in {seen}")


print("a directory, polled")
files.write("flat/f", "old")
watch = files.watch_dir("flat")
files.write("flat/f", "new")
until(watch, FilesystemEventType.WRITE, "f")
files.rename("flat/f", "flat/g")
until(watch, FilesystemEventType.CREATE, "g")
files.remove("flat/g")
until(watch, FilesystemEventType.REMOVE, "g")
assert watch.get_new_events() == []
watch.stop()
raises(SandboxException, watch.get_new_events)

print("all below it, with what is there, through a pause")
watch = files.watch_dir("flat", recursive=True, include_entry=True)
files.write("flat/new/deep/f", "12345")
assert until(watch, FilesystemEventType.CREATE, "new/deep/f").entry.path == "/home/user/flat/new/deep/f"
sandbox.commands.run("touch flat/untold")
sandbox.pause()
sandbox = sandbox.connect()
until(watch, FilesystemEventType.CREATE, "untold")
sandbox.commands.run("mkdir -p flat/again/deep; touch flat/again/deep/f")
until(watch, FilesystemEventType.CREATE, "again/deep/f")
watch.stop()

print("what cannot be watched")
raises(FileNotFoundException, files.watch_dir, "none")
raises(InvalidArgumentException, files.watch_dir, "/etc/passwd")
raises(SandboxException, files.watch_dir, "/root")


async def stream():
    same = await AsyncSandbox.connect(sandbox.sandbox_id)
    heard = asyncio.Queue()
    watch = await same.files.watch_dir("flat", on_event=heard.put_nowait, recursive=True)
    await same.files.write("flat/streamed/f", "x")
    while (e := await asyncio.wait_for(heard.get(), 20)).name != "streamed/f":
        pass
    await watch.stop()


print("a stream")
asyncio.run(stream())

print("a full disk")
sandbox.commands.run("dd if=/dev/zero of=/dev/shm/fill bs=1M count=250 2>/dev/null", user="root")
for ways in {}, {"use_octet_stream": True}:
    raises(NotEnoughSpaceException, files.write, "/dev/shm/big", os.urandom(64 << 20), **ways)
sandbox.commands.run("rm -f /dev/shm/fill /dev/shm/big", user="root")
files.write("/dev/shm/big", "there is room")

assert sandbox.kill() is True
