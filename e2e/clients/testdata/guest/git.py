"""git inside, as the client offers it: a repository is made, cloned, changed, pushed and
pulled, all within the sandbox."""

from e2b import SandboxException
from either import Sandbox, raises, run


async def main():
    sandbox = await Sandbox.create("base", timeout=300)
    git, files = sandbox.git, sandbox.files

    print("made")
    await git.init("/home/user/origin.git", bare=True, initial_branch="main")
    await git.init("/home/user/work", initial_branch="main")
    await git.configure_user("A User", "user@example.com")
    assert await git.get_config("user.name") == "A User"
    await git.set_config("pull.rebase", "false")
    status = await git.status("work")
    assert (status.current_branch, status.is_clean) == ("main", True), status

    print("changed")
    await files.write("work/a.txt", "one\n")
    await files.write("work/dir/b.txt", "two\n")
    status = await git.status("work")
    assert (status.is_clean, status.has_untracked, status.untracked_count) == (False, True, 2), status
    await git.add("work")
    status = await git.status("work")
    assert (status.has_staged, status.staged_count) == (True, 2), status
    await git.commit("work", 'The first "words" & more')
    assert (await git.status("work")).is_clean

    print("branches")
    await git.create_branch("work", "side")
    await files.write("work/a.txt", "one and a half\n")
    await git.commit("work", "On the side", allow_empty=True)
    await git.restore("work", paths=["a.txt"])
    assert await files.read("work/a.txt") == "one\n"
    branches = await git.branches("work")
    assert (sorted(branches.branches), branches.current_branch) == (["main", "side"], "side"), branches
    await git.checkout_branch("work", "main")
    await git.delete_branch("work", "side", force=True)
    assert (await git.branches("work")).branches == ["main"]

    print("pushed, cloned, pulled")
    await git.remote_add("work", "origin", "/home/user/origin.git")
    assert await git.remote_get("work", "origin") == "/home/user/origin.git"
    await git.push("work", remote="origin", branch="main", set_upstream=True)
    await git.clone("/home/user/origin.git", path="/home/user/copy")
    assert await files.read("copy/dir/b.txt") == "two\n"
    await files.write("copy/c.txt", "three\n")
    await git.add("copy", files=["c.txt"])
    await git.commit("copy", "The second", author_name="Another", author_email="another@example.com")
    status = await git.status("copy")
    assert (status.ahead, status.behind) == (1, 0), status
    await git.push("copy")
    await git.pull("work")
    assert await files.read("work/c.txt") == "three\n"
    log = await sandbox.commands.run("git log --format='%an: %s'", cwd="work")
    assert log.stdout == 'Another: The second\nA User: The first "words" & more\n', log

    print("taken back")
    await git.reset("work", mode="hard", target="HEAD~1")
    assert await files.exists("work/c.txt") is False
    await raises(SandboxException, git.clone("/home/user/no-such.git", path="/home/user/never"))
    await raises(SandboxException, git.checkout_branch("work", "no-such"))

    assert await sandbox.kill() is True


run(main)
