"""Files: any bytes, any size, each way of sending them, folders, users, signed links."""

import hashlib
import io
import json
import os
import time
import urllib.error
import urllib.request

from e2b import FileNotFoundException, InvalidArgumentException, Sandbox, SandboxException

sandbox = Sandbox.create("base", timeout=300)
files = sandbox.files


def sha(data):
    return hashlib.sha256(data).hexdigest()


def inside(path):
    return sandbox.commands.run(f"sha256sum {path}").stdout.split()[0]


def raises(kind, call, *args, **kw):
    try:
        call(*args, **kw)
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


print("any bytes, each way")
data = bytes(range(256)) + os.urandom(100_000)
for i, ways in enumerate(({}, {"use_octet_stream": True}, {"gzip": True})):
    path = f"ways/deep/{i}.bin"
    assert files.write(path, data, **ways).path == f"/home/user/{path}"
    assert inside(path) == sha(data)
    assert files.read(path, format="bytes") == data
    assert files.read(path, format="bytes", gzip=True) == data
files.write("empty", "")
assert files.read("empty") == ""
name = 'имя с пробелом, "кавычки" & %41?#.txt'
files.write(name, "odd")
assert files.read(name) == "odd"
assert name in [e.name for e in files.list(".")]

print("several at once")
wrote = files.write_files([{"path": "a/1", "data": "one"}, {"path": "/tmp/2", "data": b"two"}])
assert [w.path for w in wrote] == ["/home/user/a/1", "/tmp/2"]
assert (files.read("a/1"), files.read("/tmp/2")) == ("one", "two")

print("64 MB, as a stream")
big = os.urandom(1 << 20) * 64
files.write("big", io.BytesIO(big))
assert files.get_info("big").size == 64 << 20
assert inside("big") == sha(big)
got = hashlib.sha256()
for chunk in files.read("big", format="stream"):
    got.update(chunk)
assert got.hexdigest() == sha(big)

print("folders")
assert files.make_dir("d/e/f") is True
assert files.make_dir("d/e/f") is False
files.write("d/e/f/x", "x")
assert [(e.path, e.type.value) for e in files.list("d", depth=3)] == [
    ("/home/user/d/e", "dir"),
    ("/home/user/d/e/f", "dir"),
    ("/home/user/d/e/f/x", "file"),
]
assert files.rename("d/e/f/x", "d/y").path == "/home/user/d/y"
assert files.exists("d/e/f/x") is False
assert files.exists("d/y") is True
files.remove("d")
assert files.exists("d") is False
raises(FileNotFoundException, files.list, "d")
raises(FileNotFoundException, files.rename, "d", "g")
raises(InvalidArgumentException, files.read, "/home")

print("what is known of a file")
sandbox.commands.run("printf 12345 >f; chmod 640 f; ln -s f link")
f = files.get_info("f")
assert (f.name, f.type.value, f.path, f.size, f.mode, f.permissions, f.owner, f.group) == (
    "f", "file", "/home/user/f", 5, 0o640, "-rw-r-----", "user", "user",
), f
assert abs(f.modified_time.timestamp() - time.time()) < 60
link = files.get_info("link")
assert (link.type.value, link.symlink_target) == ("symlink", "/home/user/f"), link
assert "Linux" in files.read("/proc/version"), "a file of unknown length is whole"

print("users")
files.write("/root/secret", "s", user="root")
assert files.get_info("/root/secret", user="root").owner == "root"
raises(SandboxException, files.write, "/root/mine", "m")
raises(SandboxException, files.read, "/root/secret")

print("what a file is said to be")
assert files.write("tagged", "x", metadata={"Purpose": "test"}).metadata == {"purpose": "test"}
assert files.get_info("tagged").metadata == {"purpose": "test"}

print("signed links, without a key or an id")
url = sandbox.download_url("a/1")
assert urllib.request.urlopen(url).read() == b"one"
raises(urllib.error.HTTPError, urllib.request.urlopen, url.replace("path=a%2F1", "path=a%2F2"))
up = urllib.request.Request(
    sandbox.upload_url("up.txt", use_signature_expiration=60),
    data=b"uploaded",
    headers={"Content-Type": "application/octet-stream"},
)
assert json.load(urllib.request.urlopen(up))[0]["path"] == "/home/user/up.txt"
assert files.read("up.txt") == "uploaded"

assert sandbox.kill() is True
