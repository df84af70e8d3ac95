// A sandbox that is killed under a stream of any kind: the client says so, and takes it
// neither for an end nor for a broken network.
import assert from 'node:assert/strict'
import { Sandbox, SandboxNotFoundError, TimeoutError } from 'e2b'

const gone = (e) => e instanceof TimeoutError && /killed or reached its end of life/.test(e.message)
const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
const { commands } = sandbox
await commands.run('truncate -s 512M big')
const noisy = await commands.run('while :; do echo x; sleep 0.01; done', { background: true, timeoutMs: 0 })
const connected = await commands.connect(noisy.pid, { timeoutMs: 0 })
const silent = await commands.run('sleep 1000', { background: true, timeoutMs: 0 })
const term = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 0 })
const reader = (await sandbox.files.read('big', { format: 'stream' })).getReader()
assert.ok((await reader.read()).value.length > 0)

const all = Promise.allSettled([noisy, connected, silent, term].map((h) => h.wait()))
const began = Date.now()
assert.equal(await sandbox.kill(), true)
for (const end of await all) assert.ok(gone(end.reason), end.reason)
await assert.rejects((async () => { while (!(await reader.read()).done);  })(), 'half a file is none')
assert.ok(Date.now() - began < 30_000)
assert.equal(await sandbox.isRunning(), false)
await assert.rejects(commands.run('true'), SandboxNotFoundError)
await assert.rejects(sandbox.files.read('big'), TimeoutError)
await assert.rejects(sandbox.files.list('.'), TimeoutError)
