"""Files, folders and links in every detail that a client can see: what is known of them,
how paths are read, which way they are sent, and which error is which."""

import gzip
import io
import urllib.error
import urllib.request

from e2b import (
    AuthenticationException,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    SandboxException,
)
from either import ASYNC, Sandbox, raises, run


def get(url, **headers):
    """Status, headers and body."""
    request = urllib.request.Request(url, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        answer = urllib.request.urlopen(request)
    except urllib.error.HTTPError as e:
        answer = e
    return answer.status, answer.headers, answer.read()


async def main():
    sandbox = await Sandbox.create("base", timeout=300)
    files, commands = sandbox.files, sandbox.commands

    async def sh(cmd, **kw):
        return (await commands.run(cmd, **kw)).stdout

    print("paths: absolute, from home, with ~")
    await files.write("from-home", "h")
    for path in ("from-home", "~/from-home", "/home/user/from-home", "./from-home", "x/../from-home"):
        assert await files.read(path) == "h", path
    assert (await files.write("~/tilde/f", "t")).path == "/home/user/tilde/f"
    assert (await files.write("r", "r", user="root")).path == "/root/r"
    assert (await files.get_info("~", user="root")).path == "/root"

    print("reading: text, bytes, stream, in whichever encoding")
    text = "text: 沙箱 🧊 é\r\nno last newline"
    await files.write("text", text)
    assert await files.read("text") == text
    assert bytes(await files.read("text", format="bytes")) == text.encode()
    assert await files.read("text", gzip=True) == text
    stream = await files.read("text", format="stream")
    pieces = [p async for p in stream] if ASYNC else list(stream)
    assert b"".join(pieces) == text.encode()
    await files.write("latin", b"caf\xe9")
    assert bytes(await files.read("latin", format="bytes")) == b"caf\xe9"
    await sh("seq 100000 >numbers")
    numbers = "".join(f"{i}\n" for i in range(1, 100_001)).encode()
    url = sandbox.download_url("numbers")
    assert get(url)[2] == numbers
    status, headers, body = get(url, Accept_Encoding="gzip")
    assert (status, headers["Content-Encoding"], gzip.decompress(body) == numbers) == (200, "gzip", True)
    status, headers, body = get(url, Range="bytes=10-19")
    assert (status, headers["Content-Range"], body) == (206, f"bytes 10-19/{len(numbers)}", numbers[10:20])
    assert get(url, Range=f"bytes={len(numbers)}-")[0] == 416
    assert get(url, Accept_Encoding="br, identity;q=0")[0] == 406

    print("writing: replaced whole, each way, several at once, as whom")
    for i, ways in enumerate(({}, {"use_octet_stream": True}, {"gzip": True}, {"gzip": True, "use_octet_stream": True})):
        await files.write("long", "a long text" * 9)
        await files.write("long", f"short {i}", **ways)
        assert await files.read("long") == f"short {i}", ways
        await files.write("long", io.BytesIO(b"of a file"), **ways)
        assert await files.read("long") == "of a file", ways
    assert await sh("stat -c '%U %a' long") == "user 644\n"
    await files.write("/srv/made/here/f", "x", user="root")
    assert await sh("stat -c '%U %a' /srv/made /srv/made/here") == "root 755\nroot 755\n"
    await sh("chmod 750 long")
    await files.write("long", "again")
    assert await sh("stat -c %a long") == "750\n", "a file that is there keeps its permissions"
    several = await files.write_files([{"path": f"many/{i % 4}/{i}", "data": f"{i}"} for i in range(20)])
    assert len(several) == 20
    assert await sh("cat many/3/19 many/0/0; find many -type f | wc -l") == "19020\n"
    await sh("ln -s long link-to-long")
    await files.write("link-to-long", "through")
    assert await sh("cat long; readlink link-to-long") == "throughlong\n", "a link is written through"

    print("what is known of entries")
    await sh(
        "mkdir -p kinds/dir; cd kinds; printf 123 >file; ln -s file good; ln -s dir to-dir; ln -s nothing dangling; chmod 4711 file; chmod 1777 dir"
    )
    listed = await files.list("kinds")
    assert [e.name for e in listed] == ["dangling", "dir", "file", "good", "to-dir"], "by name"
    by = {e.name: e for e in listed}
    assert (by["dir"].type, by["file"].type) == (FileType.DIR, FileType.FILE)
    targets = [by[n].symlink_target for n in ("good", "to-dir", "file")]
    assert targets == ["/home/user/kinds/file", "/home/user/kinds/dir", None], targets
    f = by["file"]
    assert (f.size, f.mode & 0o777, f.owner, f.group) == (3, 0o711, "user", "user"), f
    for e in listed:
        assert await files.get_info(e.path) == e, "the same by both ways"
    assert await files.exists("kinds/dangling") is True
    assert await files.exists("kinds/none") is False
    await sh("touch -d 2001-02-03T04:05:06Z kinds/file")
    modified = (await files.get_info("kinds/file")).modified_time
    assert modified.isoformat().startswith("2001-02-03T04:05:06"), modified

    print("lists: how deep")
    await sh("mkdir -p deep/a/b/c; touch deep/a/b/c/f; ln -s / deep/root")

    async def depth(**kw):
        return [e.path.removeprefix("/home/user/deep/") for e in await files.list("deep", **kw)]

    assert await depth() == ["a", "root"]
    assert await depth(depth=2) == ["a", "a/b", "root"]
    assert await depth(depth=9) == ["a", "a/b", "a/b/c", "a/b/c/f", "root"], "links are not followed"
    await raises(InvalidArgumentException, files.list("deep", depth=0))

    print("folders, moves, removals")
    assert await files.make_dir("m/n") is True
    assert await files.make_dir("m/n") is False
    await raises(SandboxException, files.make_dir("kinds/file/x"))
    moved = await files.rename("kinds/file", "m/deeper/than/that")
    assert (moved.path, moved.size) == ("/home/user/m/deeper/than/that", 3)
    assert (await files.rename("m", "m2")).type == FileType.DIR
    await files.write("over", "old")
    await files.write("new", "new")
    await files.rename("new", "over")
    assert await files.read("over") == "new"
    await files.remove("m2")
    assert await files.exists("m2") is False
    await files.remove("m2")
    await files.remove("link-to-long")
    assert await files.read("long") == "through", "of a link the link is removed"

    print("metadata")
    written = await files.write("tagged", "x", metadata={"Author": "me & you", "x-2": "~!"})
    assert written.metadata == {"author": "me & you", "x-2": "~!"}
    assert [e.metadata for e in await files.list(".") if e.name == "tagged"] == [written.metadata]
    assert (await files.rename("tagged", "renamed")).metadata == written.metadata
    await files.write("renamed", "y", metadata={"other": "1"})
    assert (await files.get_info("renamed")).metadata == {"other": "1"}, "each upload replaces all"
    await files.write("renamed", "z")
    assert not (await files.get_info("renamed")).metadata
    await raises(InvalidArgumentException, files.write("bad", "x", metadata={"k": "v" * 5000}))
    assert await files.exists("bad") is False

    print("which error is which")
    await raises(FileNotFoundException, files.read("no/such"))
    await raises(FileNotFoundException, files.get_info("no/such"))
    await raises(FileNotFoundException, files.list("no/such"))
    await raises(FileNotFoundException, files.rename("no/such", "x"))
    await raises(InvalidArgumentException, files.list("long"))
    await raises(InvalidArgumentException, files.read("deep"))
    await raises(InvalidArgumentException, files.write("deep", "x"))
    await raises(AuthenticationException, files.read("long", user="nobody-here"))
    await raises(AuthenticationException, files.list(".", user="nobody-here"))
    await files.write("/root/secret", "s", user="root")
    await raises(SandboxException, files.read("/root/secret"))
    await raises(SandboxException, files.write("/root/secret", "x"))
    await raises(SandboxException, files.list("/root"))
    await raises(SandboxException, files.make_dir("/root/d"))
    await raises(SandboxException, files.remove("/etc/passwd"))
    await raises(SandboxException, files.rename("/etc/passwd", "/tmp/p"))
    assert await files.read("/root/secret", user="root") == "s"
    assert (await sh("cat /etc/passwd")).startswith("root:")

    print("files whose size is not known beforehand")
    for path in ("/proc/1/status", "/proc/cpuinfo", "/proc/meminfo"):
        for ways in ({}, {"gzip": True}):
            whole = await files.read(path, user="root", **ways)
            assert len(whole) > 100 and whole.endswith("\n"), (path, ways)

    assert await sandbox.kill() is True


run(main)
