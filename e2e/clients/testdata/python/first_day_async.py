"""The first day with the asynchronous client, and ten sandboxes at once."""

import asyncio

from e2b import AsyncSandbox, CommandExitException, SandboxQuery


async def day(i):
    sandbox = await AsyncSandbox.create("base", timeout=120, metadata={"day": str(i)})
    heard = []

    async def hear(text):
        heard.append(text)
        await sandbox.files.write("go", "")

    ran = await sandbox.commands.run(f"echo {i}; until [ -e go ]; do sleep 0.02; done; echo done", on_stdout=hear)
    assert ran.stdout == f"{i}\ndone\n" and heard[0] == f"{i}\n", (ran, heard)
    try:
        await sandbox.commands.run("exit 3")
        raise AssertionError("a command that failed has raised nothing")
    except CommandExitException as e:
        assert e.exit_code == 3
    await sandbox.files.write("n.txt", str(i))
    assert await sandbox.files.read("n.txt") == str(i)
    listed = await AsyncSandbox.list(query=SandboxQuery(metadata={"day": str(i)})).next_items()
    assert [s.sandbox_id for s in listed] == [sandbox.sandbox_id]
    assert await sandbox.pause() is True
    assert await sandbox.is_running() is False
    back = await AsyncSandbox.connect(sandbox.sandbox_id)
    assert await back.files.read("n.txt") == str(i)
    snapshot = await back.create_snapshot()
    copy = await AsyncSandbox.create(snapshot.snapshot_id, timeout=120)
    assert await copy.files.read("n.txt") == str(i)
    assert await copy.kill() is True
    assert await back.kill() is True
    assert await back.kill() is False
    assert await AsyncSandbox.delete_snapshot(snapshot.snapshot_id) is True


async def main():
    await asyncio.gather(*(day(i) for i in range(10)))


asyncio.run(main())
