// A sandbox that is killed, or whose time is over, under a running command: the client
// says so, and does not take it for an end of the command or for a broken network.
import assert from 'node:assert/strict'
import { Sandbox, TimeoutError } from 'e2b'

const gone = (e) => e instanceof TimeoutError && /killed or reached its end of life/.test(e.message)
const running = async (sandbox, then) => {
  const command = sandbox.commands.run('echo here; sleep 1000', { timeoutMs: 0, onStdout: then })
  await assert.rejects(command, (e) => gone(e) || (console.log(e), false))
}

console.log('killed by its own client')
const first = await Sandbox.create('base', { timeoutMs: 120_000 })
await running(first, () => first.kill())

console.log('killed by another')
const second = await Sandbox.create('base', { timeoutMs: 120_000 })
await running(second, () => Sandbox.kill(second.sandboxId))

console.log('its time is over')
const third = await Sandbox.create('base', { timeoutMs: 120_000 })
await running(third, () => third.setTimeout(1000))

console.log('in silence')
const fourth = await Sandbox.create('base', { timeoutMs: 120_000 })
const quiet = await fourth.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
const [end] = await Promise.allSettled([quiet.wait(), fourth.kill()])
assert.ok(gone(end.reason), end.reason)
