"""Commands in every detail that a client can see: what they start with, how they are
fed, found and ended, what is said of their end, and which error is which."""

import asyncio

from e2b import CommandExitException, NotFoundException, TimeoutException
from either import ASYNC, Sandbox, raises, run


async def main():
    sandbox = await Sandbox.create("base", timeout=300, envs={"A": "sandbox", "B": "sandbox"})
    commands = sandbox.commands

    async def out(cmd, **kw):
        return (await commands.run(cmd, **kw)).stdout

    async def gone(name):
        await out(f"until ! pgrep -f '^{name}'; do sleep 0.01; done >/dev/null", timeout=20)

    print("what a command starts with")
    assert await out('shopt -q login_shell && echo "$HOME $USER $LOGNAME $PWD $E2B_SANDBOX"') == "/home/user user user /home/user true\n"
    assert await out('echo "$HOME $USER $LOGNAME $PWD"', user="root") == "/root root root /root\n"
    assert "/usr/bin" in (await out("echo $PATH")).strip().split(":")
    odd = 'a b "c" $d \n沙'
    assert await out('echo "$A $B $C"', envs={"B": "command", "C": odd}) == f"sandbox command {odd}\n"
    assert await out("echo $C$B", user="root") == "sandbox\n", "nothing of the command before"
    await sandbox.files.make_dir("sub/dir")
    assert await out("pwd", cwd="sub") == "/home/user/sub\n"
    assert await out("pwd", cwd="~/sub/dir") == "/home/user/sub/dir\n"
    assert await out("pwd", cwd="/tmp") == "/tmp\n"

    print("how a command has ended")
    seven = await raises(CommandExitException, commands.run("echo o; echo e >&2; exit 7"))
    assert (seven.exit_code, seven.stdout, seven.stderr) == (7, "o\n", "e\n"), seven
    assert "exit status 7" in seven.error
    killed = await raises(CommandExitException, commands.run("kill -9 $$"))
    assert killed.exit_code == -1 and "signal: killed" in killed.error, killed
    assert "signal: terminated" in (await raises(CommandExitException, commands.run("kill -TERM $$"))).error
    assert (await raises(CommandExitException, commands.run("(kill -9 $BASHPID)"))).exit_code == 137

    print("output: in order, apart, and without a last newline")
    heard, errors = [], []
    both = await commands.run("for i in 1 2 3; do echo o$i; echo e$i >&2; done; printf end", on_stdout=heard.append, on_stderr=errors.append)
    assert (both.stdout, both.stderr) == ("o1\no2\no3\nend", "e1\ne2\ne3\n")
    assert ("".join(heard), "".join(errors)) == (both.stdout, both.stderr)
    assert await out("head -c 3000000 /dev/zero | tr '\\0' x") == "x" * 3_000_000
    assert await out("printf '\\xff\\xfe'") == "\ufffd\ufffd", "bytes that are no text"

    print("input")
    count = await commands.run("wc -c", background=True, stdin=True)
    for _ in range(4):
        await count.send_stdin("x" * 300_000)
    await commands.close_stdin(count.pid)
    assert (await count.wait()).stdout.strip() == "1200000"
    asks = await commands.run('read -r line; echo "got $line"', background=True, stdin=True)
    assert asks.pid in [p.pid for p in await commands.list()], "it waits for its input"
    await commands.send_stdin(asks.pid, "a line\n")
    assert (await asks.wait()).stdout == "got a line\n"
    assert await out("read -r line || echo closed") == "closed\n", "input is closed where it is not asked for"
    assert await out("read -r line || echo closed", stdin=False) == "closed\n"
    await raises(NotFoundException, commands.send_stdin(999_999, "x"))
    await raises(NotFoundException, commands.close_stdin(999_999))

    print("input, as a stream")
    lines = await commands.run("sort -rn", background=True, stdin=True)
    pieces = [f"{i}\n" for i in range(1000)]
    if ASYNC:
        async with commands.stream_input(lines.pid) as stream:
            for piece in pieces:
                await stream.send(piece)
    else:
        await commands.stream_input(lines.pid, iter(pieces))
    await commands.close_stdin(lines.pid)
    assert (await lines.wait()).stdout == "".join(reversed(pieces))

    print("list and connect")
    loop = await commands.run(
        "n=0; while :; do n=$((n+1)); echo $n; sleep 0.02; done", background=True, envs={"MARK": "mine"}, cwd="/tmp", timeout=0
    )
    (listed,) = [p for p in await commands.list() if p.pid == loop.pid]
    assert (listed.cmd, list(listed.args)[:2], listed.envs["MARK"], listed.cwd) == ("/bin/bash", ["-l", "-c"], "mine", "/tmp"), listed
    await loop.disconnect()

    async def listens():
        handle = await commands.connect(loop.pid)
        return await raises(CommandExitException, handle.wait())

    two = [asyncio.create_task(listens()) for _ in range(2)]
    await out("sleep 0.5")
    assert await commands.kill(loop.pid) is True
    for end in await asyncio.gather(*two):
        assert "killed" in end.error
        n = [int(v) for v in end.stdout.split()]
        assert len(n) > 1 and n == list(range(n[0], n[0] + len(n))), "every number, once"
    assert await commands.kill(loop.pid) is False
    assert "process with pid 999999 not found" in str(await raises(NotFoundException, commands.connect(999_999)))
    brief = await commands.run("echo early; exit 7", background=True)
    await raises(CommandExitException, brief.wait())
    late = await commands.connect(brief.pid)
    assert (await raises(CommandExitException, late.wait())).exit_code == 7, "who comes late hears the end"

    print("a kill takes the whole tree, and is prompt")
    tree = await commands.run("sleep 4321 & (sleep 4321 & sleep 4321) & setsid sleep 4321 & sleep 4321", background=True, timeout=0)
    await out("until [ $(pgrep -fc '^sleep 4321') = 5 ]; do sleep 0.01; done")
    assert await asyncio.wait_for(tree.kill(), 20) is True
    await gone("sleep 4321")

    print("deadlines: of the client alone, of the whole tree, and only where there is one")
    await raises(TimeoutException, commands.run("setsid sleep 4322 & sleep 4322", timeout=0.7))
    await gone("sleep 4322")
    short = await commands.run("sleep 4323", background=True, timeout=0.7)
    await raises(TimeoutException, short.wait())
    await gone("sleep 4323")
    assert short.pid not in [p.pid for p in await commands.list()]
    long = await commands.run("sleep 2; echo whole", background=True, timeout=0)
    quick = await commands.connect(long.pid, timeout=0.5)
    await raises(TimeoutException, quick.wait())
    assert (await long.wait()).stdout == "whole\n", "the deadline of one who only listens is his own"

    print("forty at once")

    async def one(i):
        try:
            return await commands.run(f"echo {i}; sleep 0.1; echo {i} >&2; exit {i % 2}")
        except CommandExitException as e:
            return e

    for i, r in enumerate(await asyncio.gather(*(one(i) for i in range(40)))):
        assert (r.stdout, r.stderr, r.exit_code) == (f"{i}\n", f"{i}\n", i % 2), r

    assert await sandbox.kill() is True


run(main)
