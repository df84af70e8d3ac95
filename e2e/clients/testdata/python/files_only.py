"""A pause that keeps files and no memory, and a resume without the memory that there is."""

from e2b import Sandbox

sandbox = Sandbox.create("base", timeout=120)
sandbox.files.write("/home/user/note.txt", "written before")
sandbox.commands.run("sleep 1000", background=True, timeout=0)

print("a pause without memory")
assert sandbox.pause(mode="filesystem") is True
back = Sandbox.connect(sandbox.sandbox_id)
assert back.files.read("/home/user/note.txt") == "written before"
assert back.commands.run("pgrep -cx sleep || true").stdout == "0\n"

print("a resume without it")
back.files.write("/home/user/note.txt", "written after")
back.commands.run("sleep 1000", background=True, timeout=0)
assert back.pause() is True
booted = Sandbox.connect(sandbox.sandbox_id, on_resume="reboot")
assert booted.files.read("/home/user/note.txt") == "written after"
assert booted.commands.run("pgrep -cx sleep || true").stdout == "0\n"

print("a resume with it")
running = booted.commands.run("sleep 1000", background=True, timeout=0)
assert booted.pause() is True
again = Sandbox.connect(sandbox.sandbox_id)
assert any(p.pid == running.pid for p in again.commands.list())

assert again.kill() is True
