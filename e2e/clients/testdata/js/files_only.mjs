// A pause that keeps files and no memory: what comes back has been booted.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 120_000, envs: { STAGE: 'test' }, metadata: { user: 'ann' } })
await sandbox.files.write('/home/user/kept/note.txt', 'written before')
await sandbox.commands.run('echo more >>kept/note.txt; ln -s kept/note.txt link; chmod 600 kept/note.txt')
await sandbox.commands.run('rm /etc/debian_version', { user: 'root' })
const loop = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })

console.log('without memory')
assert.equal(await sandbox.pause({ keepMemory: false }), true)
assert.equal(await sandbox.pause({ keepMemory: false }), false, 'it is paused already')
await assert.rejects(loop.wait())
const back = await Sandbox.connect(sandbox.sandboxId)
assert.equal(back.sandboxId, sandbox.sandboxId)
assert.equal(await back.files.read('/home/user/kept/note.txt'), 'written beforemore\n')
const look = await back.commands.run('readlink link; stat -c %a kept/note.txt; test -e /etc/debian_version || echo gone; pgrep -cx sleep || true; echo $STAGE')
assert.equal(look.stdout, 'kept/note.txt\n600\ngone\n0\ntest\n')
assert.deepEqual((await back.getInfo()).metadata, { user: 'ann' })
assert.ok(!(await back.commands.list()).some((p) => p.pid === loop.pid && p.args.includes('sleep 1000')))

console.log('with memory again')
const kept = await back.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
assert.equal(await back.pause(), true)
const whole = await Sandbox.connect(sandbox.sandboxId)
assert.ok((await whole.commands.list()).some((p) => p.pid === kept.pid))
assert.equal(await whole.files.read('/home/user/kept/note.txt'), 'written beforemore\n')
kept.wait().catch(() => {}) // its stream ended with the pause

assert.equal(await whole.kill(), true)
