"""What a user does on the first day: create, run with streaming, files, list, pause,
connect, snapshot, create from the snapshot, kill."""

import re

from e2b import CommandExitException, FileNotFoundException, Sandbox, SandboxQuery, SandboxState

print("create")
sandbox = Sandbox.create("base", timeout=120, metadata={"task": "day one & more"}, envs={"GREETING": "hello"})
assert re.fullmatch("[a-z0-9]+", sandbox.sandbox_id)
assert sandbox.is_running() is True

print("run, with streaming")
heard = []


def hear(text):
    # If output came at the end only, this command would never end.
    heard.append(text)
    if len(heard) == 1:
        sandbox.files.write("go", "")


ran = sandbox.commands.run(
    'echo "$GREETING"; until [ -e go ]; do sleep 0.02; done; echo "bye" >&2; id -un; pwd',
    on_stdout=hear,
    on_stderr=heard.append,
)
assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "hello\nuser\n/home/user\n", "bye\n"), ran
assert heard[0] == "hello\n" and "bye\n" in heard, heard
try:
    sandbox.commands.run("echo no >&2; exit 3")
    raise AssertionError("a command that failed has raised nothing")
except CommandExitException as e:
    assert (e.exit_code, e.stderr) == (3, "no\n"), e

print("files")
assert sandbox.files.write("notes/today.txt", "first line\n").path == "/home/user/notes/today.txt"
assert sandbox.files.read("notes/today.txt") == "first line\n"
assert [(e.name, e.type.value, e.path) for e in sandbox.files.list("notes")] == [
    ("today.txt", "file", "/home/user/notes/today.txt")
]
try:
    sandbox.files.read("notes/tomorrow.txt")
    raise AssertionError("a file that is not there has been read")
except FileNotFoundException:
    pass

print("list")
query = SandboxQuery(metadata={"task": "day one & more"}, state=[SandboxState.RUNNING])
page = Sandbox.list(query=query)
assert [(s.sandbox_id, s.state, s.metadata["task"]) for s in page.next_items()] == [
    (sandbox.sandbox_id, SandboxState.RUNNING, "day one & more")
]
assert not page.has_next
assert Sandbox.list(query=SandboxQuery(metadata={"task": "day two"})).next_items() == []

print("pause")
assert sandbox.pause() is True
assert sandbox.get_info().state == SandboxState.PAUSED
assert sandbox.is_running() is False

print("connect")
back = Sandbox.connect(sandbox.sandbox_id)
assert back.sandbox_id == sandbox.sandbox_id
assert back.get_info().state == SandboxState.RUNNING
assert back.files.read("notes/today.txt") == "first line\n"
assert back.commands.run('echo "$GREETING"').stdout == "hello\n"

print("snapshot")
snapshot = back.create_snapshot()
back.files.write("notes/today.txt", "changed since\n")
assert [s.snapshot_id for s in back.list_snapshots().next_items()] == [snapshot.snapshot_id]

print("create from the snapshot")
copy = Sandbox.create(snapshot.snapshot_id, timeout=120)
assert copy.sandbox_id != back.sandbox_id
assert copy.files.read("notes/today.txt") == "first line\n"
assert back.files.read("notes/today.txt") == "changed since\n"

print("kill")
assert copy.kill() is True
assert back.kill() is True
assert copy.is_running() is False
assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
