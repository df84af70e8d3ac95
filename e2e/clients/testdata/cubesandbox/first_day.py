"""What CubeSandbox's client does on the first day: create, commands, files, snapshot,
list with pages, rollback, clone(3), clone(10, concurrency=5), pause, resume, delete."""

import time

import cubesandbox
import httpx
from cubesandbox import ApiError, Sandbox, SandboxNotFoundError, SandboxState, TemplateNotFoundError
from cubesandbox._exceptions import FilesystemNotFoundError


def raises(kind, call, *args, **kw):
    try:
        call(*args, **kw)
    except kind as e:
        return e
    raise AssertionError(f"no {kind}")


print("create")
assert Sandbox.health()["status"] == "ok"
source = Sandbox.create(timeout=600, metadata={"day": "one"}, envs={"GREETING": "hello"})
info = source.get_info()
assert (info.sandbox_id, info.state, info.metadata) == (source.sandbox_id, SandboxState.RUNNING, {"day": "one"})
assert len(source.sandbox_id) == 32 and info.cpu_count > 0 and info.memory_mb > 0 and info.end_at > info.started_at
mine = [s for s in Sandbox.list_v2() if s["sandboxID"] == source.sandbox_id]
assert [s["state"] for s in mine] == ["running"] and len(Sandbox.list()) == 1
raises(TemplateNotFoundError, Sandbox.create, template="no-such-template")

print("commands")
ran = source.commands.run('echo "$GREETING $MORE"; id -un; pwd; echo problem >&2; exit 3', envs={"MORE": "there"}, cwd="/tmp")
assert (ran.stdout, ran.stderr, ran.exit_code) == ("hello there\nroot\n/tmp\n", "problem\n", 3), ran
assert source.commands.run("id -un; pwd", user="user").stdout == "user\n/home/user\n"
# The client gives up after a second of silence itself: either may be the first.
ended = raises((RuntimeError, httpx.ReadTimeout), source.commands.run, "exec -a forever sleep 1000", timeout=1)
assert isinstance(ended, httpx.ReadTimeout) or "deadline_exceeded" in str(ended), ended
end = time.monotonic() + 20
while source.commands.run("pgrep -x forever || pgrep -f '^forever 1000'").exit_code == 0:
    assert time.monotonic() < end, "the deadline ends nothing"

print("files")
files = source.files
files.write("/root/notes/today.txt", "before 沙箱\n")
assert files.read("/root/notes/today.txt") == "before 沙箱\n"
assert files.write_files([("/root/notes/a", "a"), ("/root/notes/b", b"\x00\xff")]) == 2
assert [e["name"] for e in files.list("/root/notes", user="root")] == ["a", "b", "today.txt"]
assert files.stat("/root/notes/b", user="root")["size"] in (2, "2")
assert files.exists("/root/notes/a", user="root") and not files.exists("/root/nothing", user="root")
files.rename("/root/notes/a", "/root/notes/c", user="root")
files.make_dir("/root/more/deep", user="root")
files.remove("/root/notes/c", user="root")
assert [e["name"] for e in files.list("/root", user="root") if not e["name"].startswith(".")] == ["more", "notes"]
raises(FilesystemNotFoundError, files.stat, "/root/notes/c", user="root")
raises(OSError, files.read, "/root/nothing")
big = "".join(chr(32 + i % 95) for i in range(1 << 20)) * 8
files.write("/tmp/big", big)
assert files.read("/tmp/big") == big

print("snapshot")
named = source.create_snapshot("before-change")
assert any("before-change" in n for n in named.names), named
snapshots = [named.snapshot_id] + [source.create_snapshot().snapshot_id for _ in range(4)]
assert len(set(snapshots)) == 5

print("list with pages")
found, token, sizes = [], None, []
while True:
    page, token = Sandbox.list_snapshots(sandbox_id=source.sandbox_id, limit=2, next_token=token)
    found += [s.snapshot_id for s in page]
    sizes.append(len(page))
    if token is None:
        break
assert sizes == [2, 2, 1] and sorted(found) == sorted(snapshots), (sizes, found)
assert Sandbox.list_snapshots(sandbox_id="0" * 32) == ([], None)

print("rollback")
files.write("/root/notes/today.txt", "after\n")
done = source.rollback(named.snapshot_id)
assert (done["sandboxID"], done["snapshotID"], done["status"]) == (source.sandbox_id, named.snapshot_id, "READY"), done
assert source.files.read("/root/notes/today.txt") == "before 沙箱\n"
assert source.get_info().state == SandboxState.RUNNING
raises(SandboxNotFoundError, source.rollback, "snap-" + "0" * 24)

print("clone(3)")
source.files.write("/root/who", "source")
clones = source.clone(3)
assert len({c.sandbox_id for c in clones} | {source.sandbox_id}) == 4
for i, clone in enumerate(clones):
    assert clone.files.read("/root/who") == "source"
    clone.files.write("/root/who", f"clone {i}")
assert [c.files.read("/root/who") for c in clones] == ["clone 0", "clone 1", "clone 2"]
assert source.files.read("/root/who") == "source"
for clone in clones:
    clone.kill()
assert len(Sandbox.list_snapshots()[0]) == 5, "the snapshot of the clones goes with the last of them"

print("clone(10, concurrency=5)")
clones = source.clone(10, concurrency=5)
assert len({c.sandbox_id for c in clones}) == 10
assert {c.commands.run("cat /root/who").stdout for c in clones} == {"source"}
machines = {c.commands.run("cat /etc/machine-id /proc/sys/kernel/random/uuid").stdout for c in clones}
assert len(machines) == 10, "clones have a random of their own"
for clone in clones:
    clone.kill()

print("pause")
source.pause()
assert source.get_info().state == SandboxState.PAUSED
raises(ApiError, source.pause)

print("resume")
source.resume(timeout=300)
assert source.get_info().state == SandboxState.RUNNING
assert raises(ApiError, source.resume).status_code == 409
assert source.commands.run('cat /root/who; echo "$GREETING"').stdout == "sourcehello\n"
source.pause(wait=False)
back = Sandbox.connect(source.sandbox_id)
assert back.sandbox_id == source.sandbox_id and back.files.read("/root/who") == "source"

print("delete")
back.set_timeout(cubesandbox.NEVER_TIMEOUT)
assert back.get_info().end_at is None
back.kill()
raises(SandboxNotFoundError, back.kill)
raises(SandboxNotFoundError, back.get_info)
raises(SandboxNotFoundError, Sandbox.connect, back.sandbox_id)
outlived = Sandbox.create(template=named.snapshot_id)
assert outlived.files.read("/root/notes/today.txt") == "before 沙箱\n"
with outlived:
    pass
for snapshot in snapshots:
    Sandbox.delete_snapshot(snapshot)
raises(TemplateNotFoundError, Sandbox.delete_snapshot, snapshots[0])
assert Sandbox.list() == [] and Sandbox.list_snapshots() == ([], None)
