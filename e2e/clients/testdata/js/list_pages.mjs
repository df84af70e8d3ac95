// Lists over several pages: of sandboxes, running and paused, and of snapshots.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const all = async (paginator) => {
  const pages = []
  while (paginator.hasNext) pages.push(await paginator.nextItems())
  return pages
}
const sizes = (pages) => pages.map((p) => p.length)

console.log('sandboxes')
const sandboxes = []
for (let i = 0; i < 5; i++) sandboxes.push(await Sandbox.create('base', { timeoutMs: 120_000, metadata: { set: 'pages', 'ключ =&': `№ ${i}` } }))
await sandboxes[1].pause()
const ids = sandboxes.map((s) => s.sandboxId)
const query = { metadata: { set: 'pages' } }
let pages = await all(Sandbox.list({ query, limit: 2 }))
assert.deepEqual(sizes(pages), [2, 2, 1])
assert.deepEqual(pages.flat().map((s) => s.sandboxId), ids.toReversed(), 'the newest first')
assert.deepEqual(pages.flat().map((s) => s.state), ['running', 'running', 'running', 'paused', 'running'])
assert.deepEqual(sizes(await all(Sandbox.list({ query, limit: 5 }))), [5], 'a full last page is the last')
assert.deepEqual((await all(Sandbox.list({ query: { ...query, state: ['paused'] } }))).flat().map((s) => s.sandboxId), [ids[1]])
assert.deepEqual((await all(Sandbox.list({ query: { ...query, state: ['running'] }, limit: 3 }))).map((p) => p.length), [3, 1])
assert.deepEqual((await all(Sandbox.list({ query: { metadata: { 'ключ =&': '№ 3' } } }))).flat().map((s) => s.sandboxId), [ids[3]])

console.log('snapshots')
const snapshots = []
for (let i = 0; i < 3; i++) snapshots.push((await sandboxes[0].createSnapshot()).snapshotId)
const elsewhere = (await sandboxes[2].createSnapshot()).snapshotId
pages = await all(sandboxes[0].listSnapshots({ limit: 2 }))
assert.deepEqual(sizes(pages), [2, 1])
assert.deepEqual(pages.flat().map((s) => s.snapshotId).toSorted(), snapshots.toSorted())
assert.deepEqual((await all(Sandbox.listSnapshots({ limit: 1 }))).flat().map((s) => s.snapshotId).toSorted(), [...snapshots, elsewhere].toSorted())

for (const id of [...snapshots, elsewhere]) assert.equal(await Sandbox.deleteSnapshot(id), true)
for (const s of sandboxes) assert.equal(await s.kill(), true)
