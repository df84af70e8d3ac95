"""git clones a repository that is inside, and checks what came."""
import hashlib
import os
import subprocess
import sys

import jobs
import work

COMMITS, FILES, SIZE = 200, 100, 60_000


class Clone(jobs.Jobs):
    def __init__(self, data):
        super().__init__(data)
        self.env.update(GIT_CONFIG_GLOBAL=self.path("gitconfig"), GIT_TERMINAL_PROMPT="0")
        self.call("git", "init", "--quiet", "--bare", "--initial-branch=main", "origin.git")
        self.want = {}
        subprocess.run(["git", "-C", self.path("origin.git"), "fast-import", "--quiet"], input=b"".join(self.history()),
                       env=self.env, check=True)
        self.head = self.call("git", "-C", "origin.git", "rev-parse", "main").strip()
        self.add("clone", self.once)

    def history(self):
        """Commits on main, each of which writes a file anew."""
        for n in range(COMMITS):
            name, body = f"part{n % 7}/file{n % FILES}", work.content("git", n, 0, SIZE // 2 + n * 31 % (SIZE // 2))
            self.want[name] = hashlib.sha256(body).hexdigest()
            yield b"commit refs/heads/main\ncommitter A <a@test> %d +0000\ndata 6\nnumber\n" % (1_700_000_000 + n)
            yield b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(body), body)

    def once(self, _):
        to = self.again("clone")
        self.call("git", "clone", "--quiet", "file://" + self.path("origin.git"), to)
        self.said("git fsck", self.call("git", "-C", to, "fsck", "--full", "--strict", "--no-progress"), "")
        self.said("git rev-parse", self.call("git", "-C", to, "rev-parse", "HEAD"), self.head)
        self.said("git rev-list", self.call("git", "-C", to, "rev-list", "--count", "HEAD"), str(COMMITS))
        self.said("git status", self.call("git", "-C", to, "status", "--porcelain"), "")
        self.compare(jobs.tree(to, leave_out=[".git"]), self.want)


if __name__ == "__main__":
    Clone(sys.argv[1]).serve()
