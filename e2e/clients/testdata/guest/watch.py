"""A folder that is watched: each kind of change, folders made meanwhile, what is known
of what has changed, the end, and what cannot be watched."""

from e2b import AuthenticationException, FileNotFoundException, InvalidArgumentException, SandboxException
from either import ASYNC, Sandbox, Watched, raises, run


async def main():
    sandbox = await Sandbox.create("base", timeout=300)
    files, commands = sandbox.files, sandbox.commands

    print("each kind of change")
    await commands.run("mkdir -p w/there; echo old >w/old; echo x >w/there/below")
    plain = await Watched.on(sandbox, "w")
    await files.write("w/new", "text")
    await plain.until("create", "new")
    await plain.until("write", "new")
    await commands.run("chmod 600 w/old")
    await plain.until("chmod", "old")
    await files.rename("w/old", "w/newer")
    await plain.until("rename", "old")
    await plain.until("create", "newer")
    await files.remove("w/new")
    await plain.until("remove", "new")
    await files.make_dir("w/folder")
    await plain.until("create", "folder")
    await files.write("w/there/below", "changed")
    await files.write("w/folder/below", "x")
    await files.write("w/last", "")
    await plain.until("create", "last")
    assert not [e for e in plain.events if "/" in e.name], "what is below is not seen"
    assert all(e.entry is None for e in plain.events), "nothing more is said where it is not asked for"
    await plain.stop()
    if not ASYNC:
        await raises(SandboxException, plain.handle.get_new_events())

    print("all that is below, folders made meanwhile too")
    await commands.run("mkdir -p deep/a/b")
    below = await Watched.on(sandbox, "deep", recursive=True)
    await files.write("deep/a/b/f", "x")
    await below.until("create", "a/b/f")
    await below.until("write", "a/b/f")
    await files.make_dir("deep/new")
    await below.until("create", "new")
    await files.write("deep/new/f", "x")
    await below.until("write", "new/f")
    await commands.run("mkdir -p deep/at/once/all && echo x >deep/at/once/all/f")
    await below.until("create", "at")
    await commands.run("echo more >>deep/at/once/all/f; rm -r deep/new")
    await below.until("write", "at/once/all/f")
    await below.until("remove", "new/f")
    await below.until("remove", "new")
    await below.stop()

    print("what is known of what has changed")
    await commands.run("mkdir e")
    known = await Watched.on(sandbox, "e", include_entry=True)
    await commands.run("printf 12345 >e/f; chmod 640 e/f")
    await known.until("create", "f")
    entry = (await known.until("chmod", "f")).entry
    assert (entry.path, entry.type.value, entry.size, entry.mode, entry.owner) == ("/home/user/e/f", "file", 5, 0o640, "user"), entry
    await files.remove("e/f")
    assert (await known.until("remove", "f")).entry is None
    await known.stop()

    if ASYNC:
        print("its time is over")
        short = await Watched.on(sandbox, "w", timeout=0.7)
        await short.ended.wait()
        assert short.error is not None, "the client hears why"

    print("what cannot be watched")
    await raises(FileNotFoundException, Watched.on(sandbox, "nowhere"))
    await raises(InvalidArgumentException, Watched.on(sandbox, "w/last"))
    await raises(AuthenticationException, Watched.on(sandbox, "w", user="nobody-here"))

    print("the sandbox is killed")
    last = await Watched.on(sandbox, "w")
    assert await sandbox.kill() is True
    if ASYNC:
        await last.ended.wait()
        assert last.error is not None, "the client hears that it is over"
    else:
        await raises(SandboxException, last.handle.get_new_events())


run(main)
