"""What the installs have in common: a job is a process of the real program that works from
its beginning to its end, again and again. Each has to end with status 0, and what it left
has to be what was to be installed, byte by byte."""
import hashlib
import os
import shutil
import subprocess

import work

KEPT = 50  # jobs that are remembered


def tree(folder, leave_out=()):
    """All files below a folder and what they hold, in short."""
    out = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in leave_out)
        for name in sorted(names):
            path = os.path.join(parent, name)
            if os.path.islink(path):
                out[os.path.relpath(path, folder)] = "link to " + os.readlink(path)
                continue
            with open(path, "rb") as f:
                out[os.path.relpath(path, folder)] = hashlib.sha256(f.read()).hexdigest()
    return out


class Jobs(work.Work):
    def __init__(self, data):
        super().__init__(0)
        self.data, self.job, self.ended, self.first = os.path.abspath(data), 0, [], None
        os.makedirs(self.data, exist_ok=True)
        self.env = {"PATH": os.environ["PATH"], "HOME": self.data, "LANG": "C.UTF-8"}

    def state(self):
        return {**super().state(), "job": self.job, "ended": self.ended[-KEPT:]}

    def path(self, *names):
        return os.path.join(self.data, *names)

    def call(self, *argv, cwd=None):
        """Runs a job and returns what it says."""
        p = subprocess.Popen(argv, cwd=cwd or self.data, env=self.env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.job = p.pid
        said = p.communicate()[0]
        if p.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)}: status {p.returncode}: {said[-2000:]}")
        self.ended.append(p.pid)
        self.job = 0
        return said

    def compare(self, got, want):
        """Compares two trees."""
        for name in sorted(set(got) | set(want)):
            if got.get(name) != want.get(name):
                self.wrong(f"{name}: is {got.get(name, 'missing')}, want {want.get(name, 'none')}")

    def same_as_first(self, got):
        """Compares a tree with that of the first job, which nobody disturbed."""
        if self.first is None:
            self.first = got
        self.compare(got, self.first)

    def said(self, what, got, want):
        if got.strip() != want:
            self.wrong(f"{what} says {got[-1000:]!r}, want {want!r}")

    def again(self, folder):
        """An empty place for the next job."""
        shutil.rmtree(self.path(folder), ignore_errors=True)
        return self.path(folder)
