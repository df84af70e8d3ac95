"""npm installs packages from local tarballs; they need each other, and one runs a script
when it is installed."""
import hashlib
import io
import json
import os
import sys
import tarfile

import jobs
import work

PACKAGES, FILES = 6, 10  # files of each
NPM = "/opt/npm/bin/npm-cli.js"


class Tarballs(jobs.Jobs):
    def __init__(self, data):
        super().__init__(data)
        self.want = {}
        os.makedirs(self.path("files"))
        for i in range(PACKAGES):
            self.tarball(i)
        self.add("install", self.once)

    def tarball(self, i):
        name = f"box-part{i}"
        about = {"name": name, "version": "1.0.0", "main": "index.js"}
        if i + 1 < PACKAGES:
            about["dependencies"] = {f"box-part{i + 1}": "1.0.0"}
        else:
            about["scripts"] = {"postinstall": "node -e \"require('fs').writeFileSync('built.txt', process.env.npm_package_name)\""}
        files = {f"lib/f{n}.js": f"module.exports = {n}; // {work.content(name, n, 0, 2000).hex()}\n".encode() for n in range(FILES)}
        next = f" + require('box-part{i + 1}')" if i + 1 < PACKAGES else ""
        files["index.js"] = ("module.exports = 0" + "".join(f" + require('./lib/f{n}.js')" for n in range(FILES)) + next + ";\n").encode()
        files["package.json"] = json.dumps(about).encode()
        with tarfile.open(self.path("files", f"{name}-1.0.0.tgz"), "w:gz") as t:
            for path, body in files.items():
                self.want[f"{name}/{path}"] = hashlib.sha256(body).hexdigest()
                entry = tarfile.TarInfo(f"package/{path}")
                entry.size = len(body)
                t.addfile(entry, io.BytesIO(body))
        if i + 1 == PACKAGES:
            self.want[f"{name}/built.txt"] = hashlib.sha256(name.encode()).hexdigest()

    def once(self, _):
        to = self.again("project")
        os.makedirs(to)
        with open(os.path.join(to, "package.json"), "w") as f:
            json.dump({"name": "project", "version": "1.0.0", "dependencies": {
                f"box-part{i}": f"file:../files/box-part{i}-1.0.0.tgz" for i in range(PACKAGES)}}, f)
        self.call("node", NPM, "install", "--offline", "--no-audit", "--no-fund", "--no-update-notifier",
                  "--cache", self.again("cache"), cwd=to)
        got = jobs.tree(os.path.join(to, "node_modules"))
        self.compare({name: digest for name, digest in got.items() if not name.startswith(".")}, self.want)
        self.same_as_first(got)
        self.said("what was installed", self.call("node", "-p", "require('box-part0')", cwd=to), str(PACKAGES * sum(range(FILES))))


if __name__ == "__main__":
    Tarballs(sys.argv[1]).serve()
