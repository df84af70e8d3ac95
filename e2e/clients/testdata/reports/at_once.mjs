// A sandbox answers as soon as it is known, a kill is seen as soon as it is answered,
// and it may be asked for again.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const health = (id) => fetch(`${process.env.E2B_SANDBOX_URL}/health`, { headers: { 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '49983' } })
const list = async () => {
  const ids = []
  for (const page = Sandbox.list(); page.hasNext;) ids.push(...(await page.nextItems()).map((s) => s.sandboxId))
  return ids
}
for (let i = 0; i < 5; i++) {
  const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
  assert.equal((await health(sandbox.sandboxId)).status, 204)
  assert.ok((await list()).includes(sandbox.sandboxId))
  await sandbox.pause()
  assert.ok((await list()).includes(sandbox.sandboxId), 'known as soon as it is paused')
  await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await health(sandbox.sandboxId)).status, 204)
  assert.equal(await sandbox.kill(), true)
  assert.ok(!(await list()).includes(sandbox.sandboxId))
  assert.equal((await health(sandbox.sandboxId)).status, 502)
  assert.equal(await sandbox.kill(), false)
}
