// What a user does on the first day: create, run with streaming, files, list, pause,
// connect, snapshot, create from the snapshot, kill.
import assert from 'node:assert/strict'
import { Sandbox, CommandExitError, NotFoundError } from 'e2b'

console.log('create')
const sandbox = await Sandbox.create('base', { timeoutMs: 120_000, metadata: { task: 'day one & more' }, envs: { GREETING: 'hello' } })
assert.match(sandbox.sandboxId, /^[a-z0-9]+$/)
assert.equal(await sandbox.isRunning(), true)

console.log('run, with streaming')
const heard = []
const ran = await sandbox.commands.run('echo "$GREETING"; until [ -e go ]; do sleep 0.02; done; echo "bye" >&2; id -un; pwd', {
  // If output came at the end only, this command would never end.
  onStdout: async (text) => { heard.push(text); if (heard.length === 1) await sandbox.files.write('go', '') },
  onStderr: (text) => { heard.push(text) },
})
assert.equal(ran.exitCode, 0)
assert.equal(ran.stdout, 'hello\nuser\n/home/user\n')
assert.equal(ran.stderr, 'bye\n')
assert.equal(heard[0], 'hello\n')
assert.ok(heard.includes('bye\n'))
await assert.rejects(sandbox.commands.run('echo no >&2; exit 3'), (e) => e instanceof CommandExitError && e.exitCode === 3 && e.stderr === 'no\n')

console.log('files')
const written = await sandbox.files.write('notes/today.txt', 'first line\n')
assert.equal(written.path, '/home/user/notes/today.txt')
assert.equal(await sandbox.files.read('notes/today.txt'), 'first line\n')
assert.deepEqual((await sandbox.files.list('notes')).map((e) => [e.name, e.type, e.path]), [['today.txt', 'file', '/home/user/notes/today.txt']])
await assert.rejects(sandbox.files.read('notes/tomorrow.txt'), NotFoundError)

console.log('list')
const page = Sandbox.list({ query: { metadata: { task: 'day one & more' }, state: ['running'] } })
assert.deepEqual((await page.nextItems()).map((s) => [s.sandboxId, s.state, s.metadata.task]), [[sandbox.sandboxId, 'running', 'day one & more']])
assert.equal(page.hasNext, false)
const none = Sandbox.list({ query: { metadata: { task: 'day two' } } })
assert.deepEqual(await none.nextItems(), [])

console.log('pause')
assert.equal(await sandbox.pause(), true)
assert.equal((await sandbox.getInfo()).state, 'paused')
assert.equal(await sandbox.isRunning(), false)

console.log('connect')
const back = await Sandbox.connect(sandbox.sandboxId)
assert.equal(back.sandboxId, sandbox.sandboxId)
assert.equal((await back.getInfo()).state, 'running')
assert.equal(await back.files.read('notes/today.txt'), 'first line\n')
assert.equal((await back.commands.run('echo "$GREETING"')).stdout, 'hello\n')

console.log('snapshot')
const snapshot = await back.createSnapshot()
await back.files.write('notes/today.txt', 'changed since\n')
assert.deepEqual((await back.listSnapshots().nextItems()).map((s) => s.snapshotId), [snapshot.snapshotId])

console.log('create from the snapshot')
const copy = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 120_000 })
assert.notEqual(copy.sandboxId, back.sandboxId)
assert.equal(await copy.files.read('notes/today.txt'), 'first line\n')
assert.equal(await back.files.read('notes/today.txt'), 'changed since\n')

console.log('kill')
assert.equal(await copy.kill(), true)
assert.equal(await back.kill(), true)
assert.equal(await copy.isRunning(), false)
assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
