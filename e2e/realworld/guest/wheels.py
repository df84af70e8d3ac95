"""pip installs a package from local files: wheels that need each other, and one that is
built of its sources."""
import base64
import hashlib
import io
import os
import sys
import tarfile
import zipfile

import jobs
import work

WHEELS, MODULES = 4, 15  # modules of each
SOURCES = "box_sources"


def module(package, n):
    return f"VALUE = {n}\nTEXT = '{work.content(package, n, 0, 2000).hex()}'\n".encode()


def needs(i):
    return [f"box-part{i + 1}"] if i + 1 < WHEELS else ["box-sources"]


class Wheels(jobs.Jobs):
    def __init__(self, data):
        super().__init__(data)
        self.env.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PIP_ROOT_USER_ACTION="ignore")
        self.want = {}
        os.makedirs(self.path("files"))
        for i in range(WHEELS):
            self.wheel(i)
        self.sources()
        self.add("install", self.once)

    def modules(self, package):
        files = {f"{package}/m{n}.py": module(package, n) for n in range(MODULES)}
        files[f"{package}/__init__.py"] = b"".join(b"from . import m%d\n" % n for n in range(MODULES))
        self.want.update({name: hashlib.sha256(body).hexdigest() for name, body in files.items()})
        return files

    def wheel(self, i):
        package = f"box_part{i}"
        info, files = f"{package}-1.0.dist-info", self.modules(package)
        files[f"{info}/METADATA"] = "".join(
            [f"Metadata-Version: 2.1\nName: box-part{i}\nVersion: 1.0\n"] + [f"Requires-Dist: {n}\n" for n in needs(i)]).encode()
        files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        record = [f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(b).digest()).rstrip(b'=').decode()},{len(b)}\n" for n, b in files.items()]
        files[f"{info}/RECORD"] = "".join(record + [f"{info}/RECORD,,\n"]).encode()
        with zipfile.ZipFile(self.path("files", f"{package}-1.0-py3-none-any.whl"), "w", zipfile.ZIP_DEFLATED) as z:
            for name, body in files.items():
                z.writestr(name, body)

    def sources(self):
        top = f"{SOURCES}-1.0"
        files = self.modules(SOURCES)
        files["setup.py"] = f"from setuptools import setup\nsetup(name='box-sources', version='1.0', packages=['{SOURCES}'])\n".encode()
        files["PKG-INFO"] = b"Metadata-Version: 1.0\nName: box-sources\nVersion: 1.0\n"
        with tarfile.open(self.path("files", f"{top}.tar.gz"), "w:gz") as t:
            for name, body in files.items():
                entry = tarfile.TarInfo(f"{top}/{name}")
                entry.size = len(body)
                t.addfile(entry, io.BytesIO(body))

    def once(self, _):
        to = self.again("site")
        self.call(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", self.path("files"),
                  "--no-build-isolation", "--no-compile", "--no-cache-dir", "--target", to, "box-part0")
        got = jobs.tree(to, leave_out=["__pycache__"])
        self.compare({name: digest for name, digest in got.items() if name in self.want}, self.want)
        self.same_as_first(got)
        line = f"import sys; sys.path.insert(0, {to!r}); sys.dont_write_bytecode = True; import box_part0, {SOURCES}; "
        line += f"print(sum(getattr({SOURCES}, 'm%d' % n).VALUE for n in range({MODULES})))"
        self.said("what was installed", self.call(sys.executable, "-c", line), str(sum(range(MODULES))))


if __name__ == "__main__":
    Wheels(sys.argv[1]).serve()
