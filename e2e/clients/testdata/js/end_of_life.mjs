// What a client sees of sandboxes and snapshots that are no more, and of those that
// are already in the state that is asked for.
import assert from 'node:assert/strict'
import { Sandbox, SandboxNotFoundError, TimeoutError } from 'e2b'

console.log('pause twice')
const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
assert.equal(await sandbox.pause(), true)
assert.equal(await sandbox.pause(), false)
assert.equal(await Sandbox.pause(sandbox.sandboxId), false)

console.log('a paused sandbox is killed, twice')
assert.equal(await sandbox.kill(), true)
assert.equal(await sandbox.kill(), false)
assert.equal(await Sandbox.kill(sandbox.sandboxId), false)

console.log('what is gone is not found')
assert.equal(await sandbox.isRunning(), false)
await assert.rejects(sandbox.getInfo(), SandboxNotFoundError)
await assert.rejects(Sandbox.connect(sandbox.sandboxId), SandboxNotFoundError)
await assert.rejects(sandbox.setTimeout(60_000), SandboxNotFoundError)
await assert.rejects(sandbox.pause(), SandboxNotFoundError)
await assert.rejects(sandbox.createSnapshot(), SandboxNotFoundError)
await assert.rejects(Sandbox.getInfo('i0123456789abcdefghij'), SandboxNotFoundError)
assert.equal(await Sandbox.kill('i0123456789abcdefghij'), false)
await assert.rejects(sandbox.commands.run('true'), SandboxNotFoundError)
await assert.rejects(sandbox.files.read('/etc/hostname'), TimeoutError)

console.log('a snapshot is deleted twice')
const other = await Sandbox.create('base', { timeoutMs: 120_000 })
const { snapshotId } = await other.createSnapshot()
assert.equal(await Sandbox.deleteSnapshot(snapshotId), true)
assert.equal(await Sandbox.deleteSnapshot(snapshotId), false)
await assert.rejects(Sandbox.create(snapshotId), /404/)
await assert.rejects(Sandbox.create('no-such-template'), /404/)

console.log('connecting makes a time longer, never shorter')
const end = (await other.getInfo()).endAt.getTime()
await Sandbox.connect(other.sandboxId, { timeoutMs: 10_000 })
assert.equal((await other.getInfo()).endAt.getTime(), end)
await Sandbox.connect(other.sandboxId, { timeoutMs: 900_000 })
assert.ok((await other.getInfo()).endAt.getTime() > end + 600_000)

console.log('its time is over')
await other.setTimeout(2_000)
const asked = Date.now()
while (await other.isRunning()) assert.ok(Date.now() - asked < 10_000, 'it runs 10 s later still')
assert.ok(Date.now() - asked > 500, 'it ended at once')
await assert.rejects(other.getInfo(), SandboxNotFoundError)
assert.equal(await other.kill(), false)

console.log('its time is over, and it is kept')
const kept = await Sandbox.create('base', { timeoutMs: 2_000, lifecycle: { onTimeout: 'pause' } })
while ((await kept.getInfo()).state !== 'paused') assert.ok(Date.now() - asked < 30_000, 'it is not paused 30 s later')
const back = await kept.connect({ timeoutMs: 60_000 })
assert.equal((await back.commands.run('echo here')).stdout, 'here\n')
assert.equal(await back.kill(), true)
