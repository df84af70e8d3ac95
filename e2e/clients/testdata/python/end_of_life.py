"""What a client sees of sandboxes and snapshots that are no more, and of those that are
already in the state that is asked for."""

import time
from contextlib import contextmanager

from e2b import (
    NotFoundException,
    Sandbox,
    SandboxNotFoundException,
    SandboxNotRunningException,
    SandboxState,
)


@contextmanager
def raises(kind):
    try:
        yield
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


print("pause twice")
sandbox = Sandbox.create("base", timeout=120)
assert sandbox.pause() is True
assert sandbox.pause() is False

print("a paused sandbox is killed, twice")
assert sandbox.kill() is True
assert sandbox.kill() is False
assert Sandbox.kill(sandbox.sandbox_id) is False

print("what is gone is not found")
assert sandbox.is_running() is False
for gone in (
    sandbox.get_info,
    sandbox.pause,
    sandbox.create_snapshot,
    lambda: Sandbox.connect(sandbox.sandbox_id),
    lambda: sandbox.set_timeout(60),
    lambda: Sandbox.get_info("i0123456789abcdefghij"),
):
    with raises(SandboxNotFoundException):
        gone()
assert Sandbox.kill("i0123456789abcdefghij") is False
with raises(SandboxNotRunningException):
    sandbox.commands.run("true")
with raises(SandboxNotRunningException):
    sandbox.files.read("/etc/hostname")

print("a snapshot is deleted twice")
other = Sandbox.create("base", timeout=120)
snapshot = other.create_snapshot()
assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
assert Sandbox.delete_snapshot(snapshot.snapshot_id) is False
with raises(Exception):
    Sandbox.create(snapshot.snapshot_id)
with raises(Exception):
    Sandbox.create("no-such-template")

print("connecting makes a time longer, never shorter")
end = other.get_info().end_at
Sandbox.connect(other.sandbox_id, timeout=10)
assert other.get_info().end_at == end
Sandbox.connect(other.sandbox_id, timeout=900)
assert (other.get_info().end_at - end).total_seconds() > 600

print("its time is over")
other.set_timeout(2)
asked = time.monotonic()
while other.is_running():
    assert time.monotonic() - asked < 10, "it runs 10 s later still"
assert time.monotonic() - asked > 0.5, "it ended at once"
with raises(NotFoundException):
    other.get_info()
assert other.kill() is False

print("its time is over, and it is kept")
kept = Sandbox.create("base", timeout=2, lifecycle={"on_timeout": "pause"})
while kept.get_info().state != SandboxState.PAUSED:
    assert time.monotonic() - asked < 30, "it is not paused 30 s later"
kept.connect(timeout=60)
assert kept.commands.run("echo here").stdout == "here\n"
assert kept.kill() is True
