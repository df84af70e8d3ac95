"""A program that counts, while the server is stopped and started again by somebody else:
its stream ends at once with an error, and can be taken up again by its pid."""

import time

from e2b import CommandExitException, Sandbox

sandbox = Sandbox.create("base", timeout=300)
commands = sandbox.commands


def numbers(handle):
    """The numbers that it says, as they come."""
    text = ""
    for stdout, _, _ in handle:
        text += stdout or ""
        *lines, text = text.split("\n")
        yield from map(int, lines)


print("it counts")
counter = commands.run("n=0; while :; do n=$((n+1)); echo $n | tee -a /tmp/count; sleep 0.01; done", background=True, timeout=0)
said = numbers(counter)
while next(said) < 20:
    pass

print("the stream ends with an error")
open("counting", "w").close()  # whoever stops the server waits for this
asked, last = time.monotonic(), 0
try:
    for last in said:
        pass
    raise AssertionError("the stream has ended well")
except Exception as e:
    assert "the server is restarting; connect again" in str(e), repr(e)
assert time.monotonic() - asked < 5

print("it is taken up again")
until = time.monotonic() + 60
while True:
    try:
        again = commands.connect(counter.pid, timeout=0)
        break
    except Exception as e:
        assert time.monotonic() < until, f"it cannot be connected to: {e!r}"
        time.sleep(0.05)
said = numbers(again)
assert next(said) > last
while next(said) < last + 20:
    pass

print("no number is missing")
assert commands.kill(counter.pid) is True
try:
    again.wait()
    raise AssertionError("a command that was killed has ended well")
except CommandExitException:
    pass
count = sandbox.files.read("/tmp/count").split()
assert len(count) > last + 20
assert count == [str(n) for n in range(1, len(count) + 1)], count

assert sandbox.kill() is True
