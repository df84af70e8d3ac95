// Three pauses, by hand and by timeout in turn: each time all is there that was written
// up to the last moment, under the same id, and what was chosen for the end of its time
// still holds.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 120_000, lifecycle: { onTimeout: 'pause' } })
const writer = await sandbox.commands.run('n=0; while :; do n=$((n+1)); echo $n >>numbers; sleep 0.01; done', { background: true, timeoutMs: 0 })
const numbers = async () => {
  const lines = (await sandbox.files.read('numbers')).trimEnd().split('\n').map(Number)
  lines.forEach((n, i) => assert.equal(n, i + 1, 'every number, once'))
  return lines.length
}
let before = 0
for (let i = 0; i < 3; i++) {
  await sandbox.files.write(`round-${i}`, 'x'.repeat(1 << (10 + 4 * i)))
  if (i % 2) {
    await sandbox.setTimeout(1000)
    while ((await sandbox.getInfo()).state !== 'paused');
  } else {
    await sandbox.pause()
  }
  const back = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 120_000 })
  assert.equal(back.sandboxId, sandbox.sandboxId)
  for (let j = 0; j <= i; j++) assert.equal((await back.files.getInfo(`round-${j}`)).size, 1 << (10 + 4 * j))
  const now = await numbers()
  assert.ok(now > before, `${now} after ${before}`)
  before = now
}
assert.equal(await sandbox.commands.kill(writer.pid), true)
assert.equal(await sandbox.kill(), true)
