"""What CubeSandbox's client does inside a sandbox beside the first day: commands, files
of several kinds, a folder that is watched, a terminal."""

import threading

from cubesandbox import PartialWriteError, PtySize, Sandbox
from cubesandbox._exceptions import CubeSandboxError, FilesystemNotFoundError


def raises(kind, call, *args, **kw):
    try:
        call(*args, **kw)
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


sandbox = Sandbox.create(timeout=300, envs={"A": "sandbox"})
commands, files, pty = sandbox.commands, sandbox.files, sandbox.pty

print("commands")
ran = commands.run('echo "$A $B $HOME"; pwd; echo e >&2', envs={"B": "b"}, user="user")
assert (ran.stdout, ran.stderr, ran.exit_code) == ("sandbox b /home/user\n/home/user\n", "e\n", 0), ran
assert commands.run("exit 7").exit_code == 7
assert len(commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout) == 3_000_000
raises(Exception, commands.run, "true", user="nobody-here")
raises(Exception, commands.run, "true", cwd="/nowhere")
raises(Exception, commands.run, "sleep 4324", timeout=1)
commands.run("while pgrep -f '^sleep 4324'; do sleep 0.01; done", timeout=20)

print("files, of a user too")
files.write("mine", "m", user="user")
assert files.stat("mine", user="user")["path"] == "/home/user/mine"
assert files.read("/home/user/mine", user="user") == "m"
files.write("/root/secret", "s", user="root")
raises(OSError, files.read, "/root/secret", user="user")
partly = raises(PartialWriteError, files.write_files, [("a", "1"), ("b", "2"), ("/etc/c", "3"), ("d", "4")], user="user")
assert partly.written == 2, partly.written
assert [files.exists(p, user="user") for p in ("a", "b", "d")] == [True, True, False]
files.make_dir("dir/deep", user="user")
assert [e["name"] for e in files.list("dir", user="user")] == ["deep"]
files.rename("a", "dir/a", user="user")
files.remove("dir", user="user")
raises(FilesystemNotFoundError, files.list, "dir", user="user")
raises(FilesystemNotFoundError, files.rename, "dir", "dir2", user="user")
assert "MemTotal" in files.read("/proc/meminfo")

print("a folder that is watched")
commands.run("mkdir -m 777 /tmp/watched")
seen = set()
with files.watch_dir("/tmp/watched") as watcher:
    told = iter(watcher)
    files.write("/tmp/watched/f", "x", user="user")
    while ("f", "EVENT_TYPE_WRITE") not in seen:
        event = next(told)
        seen.add((event.name, event.type))
    assert ("f", "EVENT_TYPE_CREATE") in seen, seen
    files.remove("/tmp/watched/f", user="user")
    while ("f", "EVENT_TYPE_REMOVE") not in seen:
        event = next(told)
        seen.add((event.name, event.type))
with files.watch_dir("/tmp/none") as watcher:
    raises(OSError, next, watcher)

print("a terminal")
shell = pty.create(PtySize(rows=24, cols=80), user="user", cwd="/tmp", envs={"B": "terminal"}, timeout=60)
shown = b""
shell.send_stdin('echo "<$TERM $A $B $(id -un) $PWD>" | tr "<>" "[]"\n')
chunks = iter(shell)
while b"[xterm-256color sandbox terminal user /tmp]" not in shown:
    shown += next(chunks)
shell.resize(PtySize(rows=33, cols=101))
shell.send_stdin("stty size\n")
while b"33 101" not in shown:
    shown += next(chunks)
shell.disconnect()
again = pty.connect(shell.pid)
pty.send_stdin(shell.pid, "echo ag''ain; exit 0\n")
shown = []
assert again.wait(on_data=shown.append) == 0 and b"again" in b"".join(shown), shown
assert pty.kill(shell.pid) is False
assert "process with pid 999999 not found" in str(raises(RuntimeError, pty.connect, 999_999))

print("a terminal that is killed")
other = pty.create(PtySize(rows=24, cols=80))
killed = []
thread = threading.Thread(target=lambda: killed.append(raises(CubeSandboxError, other.wait)))
thread.start()
assert other.kill() is True
thread.join(30)
assert killed and "killed" in str(killed[0]), killed

sandbox.kill()
