"""Lists over several pages: of sandboxes, running and paused, and of snapshots."""

from e2b import Sandbox, SandboxQuery, SandboxState


def pages(paginator):
    found = []
    while paginator.has_next:
        found.append(paginator.next_items())
    return found


def flat(found):
    return [one for page in found for one in page]


print("sandboxes")
sandboxes = [
    Sandbox.create("base", timeout=120, metadata={"set": "pages", "ключ =&": f"№ {i}"}) for i in range(5)
]
sandboxes[1].pause()
ids = [s.sandbox_id for s in sandboxes]
mine = {"set": "pages"}
found = pages(Sandbox.list(query=SandboxQuery(metadata=mine), limit=2))
assert [len(p) for p in found] == [2, 2, 1], found
assert [s.sandbox_id for s in flat(found)] == ids[::-1], "the newest first"
assert [s.state.value for s in flat(found)] == ["running", "running", "running", "paused", "running"]
found = pages(Sandbox.list(query=SandboxQuery(metadata=mine, state=[SandboxState.PAUSED])))
assert [s.sandbox_id for s in flat(found)] == [ids[1]]
found = pages(Sandbox.list(query=SandboxQuery(metadata={"ключ =&": "№ 3"})))
assert [s.sandbox_id for s in flat(found)] == [ids[3]]

print("snapshots")
snapshots = [sandboxes[0].create_snapshot().snapshot_id for _ in range(3)]
elsewhere = sandboxes[2].create_snapshot().snapshot_id
found = pages(sandboxes[0].list_snapshots(limit=2))
assert [len(p) for p in found] == [2, 1], found
assert sorted(s.snapshot_id for s in flat(found)) == sorted(snapshots)
found = pages(Sandbox.list_snapshots(limit=1))
assert sorted(s.snapshot_id for s in flat(found)) == sorted([*snapshots, elsewhere])

for snapshot in [*snapshots, elsewhere]:
    assert Sandbox.delete_snapshot(snapshot) is True
for sandbox in sandboxes:
    assert sandbox.kill() is True
