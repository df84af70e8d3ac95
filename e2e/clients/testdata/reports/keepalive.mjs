// A stream on which nothing happens says now and then that it is there, as often as the
// client has asked for; each message has the form that E2B's clients read.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 120_000, envs: { A: 'of the sandbox' } })
const { envdAccessToken } = await (await fetch(`${process.env.E2B_API_URL}/sandboxes/${sandbox.sandboxId}/connect`,
  { method: 'POST', headers: { 'X-API-Key': process.env.E2B_API_KEY, 'Content-Type': 'application/json' }, body: '{"timeout":120}' })).json()
const headers = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': envdAccessToken, 'Connect-Protocol-Version': '1' }
const envelope = (message) => {
  const body = Buffer.from(JSON.stringify(message))
  const head = Buffer.alloc(5)
  head.writeUInt32BE(body.length, 1)
  return Buffer.concat([head, body])
}

// call makes a streaming call and gives each message with its flags.
async function* call(method, message, more = {}) {
  const r = await fetch(`${process.env.E2B_SANDBOX_URL}/process.Process/${method}`, { method: 'POST', headers: { ...headers, 'Content-Type': 'application/connect+json', ...more }, body: envelope(message) })
  assert.equal(r.status, 200)
  assert.equal(r.headers.get('content-type'), 'application/connect+json')
  let kept = Buffer.alloc(0)
  for await (const chunk of r.body) {
    kept = Buffer.concat([kept, chunk])
    while (kept.length >= 5 && kept.length >= 5 + kept.readUInt32BE(1)) {
      const n = kept.readUInt32BE(1)
      yield { flags: kept[0], ...JSON.parse(kept.subarray(5, 5 + n)) }
      kept = kept.subarray(5 + n)
    }
  }
}

console.log('start, keepalive, data, end, end of stream; input is open where nothing is said of it')
const kinds = []
let output = ''
for await (const { flags, event, error } of call('Start', { process: { cmd: '/bin/sh', args: ['-c', 'read -r line; echo "$line"; kill -9 $$'] } }, { 'Keepalive-Ping-Interval': '1' })) {
  assert.equal(error, undefined)
  const kind = flags === 2 ? 'over' : Object.keys(event)[0]
  if (kind === 'keepalive' && !kinds.includes('keepalive')) {
    const r = await fetch(`${process.env.E2B_SANDBOX_URL}/process.Process/SendInput`, { method: 'POST', headers: { ...headers, 'Content-Type': 'application/json' },
      body: JSON.stringify({ process: { pid }, input: { stdin: Buffer.from('a line\n').toString('base64') } }) })
    assert.equal(r.status, 200)
  }
  if (kind === 'start') var pid = event.start.pid
  if (kind === 'data') output += Buffer.from(event.data.stdout, 'base64')
  if (kind === 'end') assert.deepEqual([event.end.exitCode, event.end.exited ?? false, event.end.status], [-1, false, 'signal: killed'])
  if (kinds.at(-1) !== kind) kinds.push(kind)
}
assert.equal(output, 'a line\n')
assert.deepEqual(kinds.filter((k, i) => k !== 'keepalive' || i === 1), ['start', 'keepalive', 'data', 'end', 'over'])

console.log('errors: in the last message of a stream')
const errors = async (method, message, more) => {
  let last
  for await (last of call(method, message, more)) { /* the last counts */ }
  return [last.flags, last.error?.code, last.error?.message]
}
assert.deepEqual(await errors('Connect', { process: { pid: 999999 } }), [2, 'not_found', 'process with pid 999999 not found'])
assert.deepEqual((await errors('Start', { process: { cmd: '/bin/true', cwd: '/nowhere' } })).slice(0, 2), [2, 'invalid_argument'])
assert.match((await errors('Start', { process: { cmd: '/bin/true', cwd: '/nowhere' } }))[2], /cwd '\/nowhere' does not exist/)
assert.deepEqual(await errors('Start', { process: { cmd: '/bin/true' } }, { Authorization: `Basic ${Buffer.from('x1:').toString('base64')}` }), [2, 'unauthenticated', "invalid username: 'x1'"])
assert.deepEqual((await errors('Start', { process: { cmd: '/bin/sleep', args: ['100'] } }, { 'Connect-Timeout-Ms': '300' })).slice(0, 2), [2, 'deadline_exceeded'])

console.log('what is not of the Connect protocol')
const envs = await fetch(`${process.env.E2B_SANDBOX_URL}/envs`, { headers: { ...headers, Origin: 'https://app.example' } })
assert.deepEqual([envs.headers.get('access-control-allow-origin'), await envs.json()], ['*', { A: 'of the sandbox' }])

assert.equal(await sandbox.kill(), true)
