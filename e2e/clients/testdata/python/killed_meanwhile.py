"""A sandbox that is killed, or whose time is over, under a running command: the client
says so, and does not take it for an end of the command or for a broken network."""

from e2b import Sandbox, SandboxNotRunningException


def running(sandbox, then):
    try:
        sandbox.commands.run("echo here; sleep 1000", timeout=0, on_stdout=lambda _: then())
    except SandboxNotRunningException as e:
        assert "killed or reached its end of life" in str(e), e
        return
    raise AssertionError("the command has ended well")


print("killed by its own client")
first = Sandbox.create("base", timeout=120)
running(first, first.kill)

print("killed by another")
second = Sandbox.create("base", timeout=120)
running(second, lambda: Sandbox.kill(second.sandbox_id))

print("its time is over")
third = Sandbox.create("base", timeout=120)
running(third, lambda: third.set_timeout(1))
