"""Commands: what they are given, what they say, however much it is, and how they are
found, fed and ended."""

import threading

from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    PtySize,
    Sandbox,
    TimeoutException,
)

sandbox = Sandbox.create("base", timeout=300, envs={"A": "sandbox", "B": "sandbox"})
commands = sandbox.commands


def fails(kind, *args, **kw):
    try:
        commands.run(*args, **kw)
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


print("user, directory, environment")
assert commands.run("id -un; pwd", user="root", cwd="/tmp").stdout == "root\n/tmp\n"
assert commands.run("echo $A $B", envs={"B": "command"}).stdout == "sandbox command\n"
assert commands.run("echo $A $B").stdout == "sandbox sandbox\n", "a command leaves nothing in the next"
fails(AuthenticationException, "true", user="nobody-here")
fails(InvalidArgumentException, "true", cwd="/nowhere")
assert fails(CommandExitException, "no-such-program").exit_code == 127

print("5 MB of output are whole")
line = "".join(chr(32 + i % 95) for i in range(1023)) + "\n"
heard = []
big = commands.run(
    """python3 -c 'import sys
line = "".join(chr(32 + i % 95) for i in range(1023)) + chr(10)
for _ in range(5 << 10): sys.stdout.write(line)'""",
    on_stdout=heard.append,
)
assert big.stdout == line * (5 << 10), len(big.stdout)
assert "".join(heard) == big.stdout

print("characters are whole, wherever they are cut")
text = commands.run("""python3 -c 'print("沙箱🧊é" * 40000, end="")'""")
assert text.stdout == "沙箱🧊é" * 40000

print("input")
cat = commands.run('cat; echo "end of input"', background=True, stdin=True)
cat.send_stdin("one\n")
commands.send_stdin(cat.pid, "two\n")
cat.close_stdin()
assert cat.wait().stdout == "one\ntwo\nend of input\n"
assert commands.run("cat; echo none").stdout == "none\n", "without input it is closed"

print("list, connect, disconnect, kill")
loop = commands.run("n=0; while :; do n=$((n+1)); echo $n; sleep 0.02; done", background=True)
assert any(p.pid == loop.pid and p.cmd == "/bin/bash" and p.args[0] == "-l" for p in commands.list())
loop.disconnect()
again = commands.connect(loop.pid)
out, _, _ = next(iter(again))
assert int(out.split()[0]) > 0
assert commands.kill(loop.pid) is True
try:
    again.wait()
    raise AssertionError("a command that was killed has ended well")
except CommandExitException as e:
    assert "killed" in str(e.error), e
assert commands.kill(loop.pid) is False
assert commands.kill(999_999) is False
assert all(p.pid != loop.pid for p in commands.list())

print("of what nobody reads the last MiB is kept")
flood = commands.run(
    'until [ -e /tmp/go ]; do sleep 0.01; done; head -c 3000000 /dev/zero | tr "\\0" x; touch /tmp/written; sleep 60; true',
    background=True,
)
flood.disconnect()
commands.run("touch /tmp/go; until [ -e /tmp/written ]; do sleep 0.01; done")
late, kept = commands.connect(flood.pid), ""
for out, _, _ in late:
    kept += out or ""
    if len(kept) >= 1 << 20:
        break
assert kept == "x" * (1 << 20), "the client knows neither offsets nor what is dropped"
assert commands.kill(flood.pid) is True

print("a command whose time is over is ended, with its children")
fails(TimeoutException, "sleep 1234 & sleep 1234", timeout=1)
commands.run("while pgrep -x sleep; do sleep 0.01; done >/dev/null", timeout=10)

print("many at once")
results = [None] * 16


def one(i):
    results[i] = commands.run(f"echo {i}; sleep 0.2; echo {i}").stdout


threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert results == [f"{i}\n{i}\n" for i in range(16)], results

print("a terminal")
seen = []
pty = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=60)
sandbox.pty.resize(pty.pid, PtySize(rows=33, cols=101))
sandbox.pty.send_stdin(pty.pid, b"stty size; tty; exit 5\n")
try:
    pty.wait(on_pty=seen.append)
    raise AssertionError("exit 5 has ended well")
except CommandExitException as e:
    assert e.exit_code == 5, e
seen = b"".join(seen).decode()
assert "33 101" in seen and "/dev/pts/" in seen, seen

assert sandbox.kill() is True
