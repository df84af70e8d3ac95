"""A sandbox that is killed under a stream of any kind: the client says so, and takes it
neither for an end nor for a broken network."""

import asyncio

from e2b import SandboxNotRunningException, TimeoutException
from either import ASYNC, Sandbox, raises, run, terminal


async def main():
    sandbox = await Sandbox.create("base", timeout=120)
    commands = sandbox.commands
    await commands.run("truncate -s 512M big")
    noisy = await commands.run("while :; do echo x; sleep 0.01; done", background=True, timeout=0)
    connected = await commands.connect(noisy.pid, timeout=0)
    silent = await commands.run("sleep 1000", background=True, timeout=0)
    _, wait = await terminal(sandbox, lambda _: None, 24, 80, timeout=0)
    stream = await sandbox.files.read("big", format="stream")
    pieces = stream if ASYNC else iter(stream)
    assert len(await anext(pieces) if ASYNC else next(pieces)) > 0

    ends = [asyncio.create_task(raises(SandboxNotRunningException, w())) for w in (noisy.wait, connected.wait, silent.wait, wait)]
    assert await sandbox.kill() is True
    for end in await asyncio.wait_for(asyncio.gather(*ends), 30):
        assert "killed or reached its end of life" in str(end), end

    async def rest():
        if ASYNC:
            async for _ in pieces:
                pass
        else:
            await asyncio.to_thread(lambda: [None for _ in pieces])

    await raises(Exception, rest())
    assert await sandbox.is_running() is False
    await raises(TimeoutException, commands.run("true"))
    await raises(TimeoutException, sandbox.files.read("big"))
    await raises(TimeoutException, sandbox.files.list("."))


run(main)
