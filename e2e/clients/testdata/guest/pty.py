"""A terminal: made, fed, resized, interrupted, left and taken up again, and ended."""

import asyncio

from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    TimeoutException,
)
from either import Sandbox, again, raises, run, terminal


class Screen:
    """What a terminal shows."""

    def __init__(self):
        self.shown, self.loop, self.changed = b"", asyncio.get_running_loop(), asyncio.Event()

    def hear(self, data):
        self.shown += data
        self.loop.call_soon_threadsafe(self.changed.set)

    async def until(self, word):
        try:
            async with asyncio.timeout(30):
                while True:
                    self.changed.clear()
                    if word in self.shown.decode(errors="replace"):
                        return
                    await self.changed.wait()
        except TimeoutError:
            raise AssertionError(f"no {word!r} in {self.shown!r}") from None


async def main():
    sandbox = await Sandbox.create("base", timeout=300, envs={"A": "sandbox"})
    pty, commands = sandbox.pty, sandbox.commands

    async def type(pid, text):
        await pty.send_stdin(pid, text.encode())

    print("what it starts with")
    screen = Screen()
    term, wait = await terminal(sandbox, screen.hear, 24, 80, timeout=0, cwd="/tmp", envs={"B": "terminal"})
    ended = asyncio.create_task(raises(CommandExitException, wait()))
    await type(term.pid, 'echo "<$TERM $LANG $A $B $(id -un) $PWD $(stty size)>" | tr "<>" "[]"\n')
    await screen.until("[xterm-256color C.UTF-8 sandbox terminal user /tmp 24 80]")
    (listed,) = [p for p in await commands.list() if p.pid == term.pid]
    assert (listed.cmd, list(listed.args)) == ("/bin/bash", ["-i", "-l"]), listed

    print("resized: the program is told")
    await type(
        term.pid,
        """python3 -c 'import os, signal
signal.signal(signal.SIGWINCH, lambda *_: (print("now", *os.get_terminal_size()), os._exit(0)))
print("wai" + "ting", flush=True)
while True: signal.pause()'\n""",
    )
    await screen.until("waiting")
    await pty.resize(term.pid, PtySize(rows=44, cols=133))
    await screen.until("now 133 44")

    print("interrupted")
    await type(term.pid, "sh -c 'echo slee\"\"ping; exec sleep 1000'\n")  # that it has the terminal, it says
    await screen.until("sleeping\r\n")
    await type(term.pid, "\x03")
    await type(term.pid, 'echo "stat"us $?\n')
    await screen.until("status 130")

    print("taken up by another")
    await type(term.pid, "x=kept\n")
    later = Screen()
    _, second = await again(sandbox, term.pid, later.hear)
    over = asyncio.create_task(raises(CommandExitException, second()))
    await type(term.pid, 'echo "it is $x"\n')
    await later.until("it is kept")
    await screen.until("it is kept")

    print("any bytes")
    await type(term.pid, "printf 'B\\xc3\\xa9\\xf0\\x9f\\xa7\\x8aE\\n'\n")
    await later.until("Bé🧊E")

    print("ended")
    await type(term.pid, "exit 5\n")
    assert [(await t).exit_code for t in (ended, over)] == [5, 5]
    assert await pty.kill(term.pid) is False

    print("left, and killed with what runs in it")
    root = Screen()
    other, wait = await terminal(sandbox, root.hear, 24, 80, user="root", timeout=0)
    await type(other.pid, "id -un >who; sleep 7654 & sleep 7654\n")
    await commands.run("until [ $(pgrep -fc '^sleep 7654') = 2 ]; do sleep 0.01; done")
    await other.disconnect()
    assert await sandbox.files.read("who", user="root") == "root\n"
    handle, wait = await again(sandbox, other.pid, root.hear)
    assert await pty.kill(other.pid) is True
    assert "killed" in (await raises(CommandExitException, wait())).error
    await commands.run("until ! pgrep -f '^sleep 7654'; do sleep 0.01; done >/dev/null", timeout=20)

    print("its time is over")
    short, wait = await terminal(sandbox, Screen().hear, 24, 80, timeout=0.7)
    await raises(TimeoutException, wait())
    await commands.run(f"while kill -0 {short.pid}; do sleep 0.01; done 2>/dev/null", user="root", timeout=20)

    print("what is not there")
    nothing = Screen().hear
    await raises(NotFoundException, again(sandbox, 999_999, nothing))
    await raises(NotFoundException, pty.resize(999_999, PtySize(rows=1, cols=1)))
    await raises(NotFoundException, type(999_999, "x"))
    assert await pty.kill(999_999) is False
    await raises(AuthenticationException, terminal(sandbox, nothing, 24, 80, user="nobody-here"))
    await raises(InvalidArgumentException, terminal(sandbox, nothing, 24, 80, cwd="/nowhere"))

    assert await sandbox.kill() is True


run(main)
