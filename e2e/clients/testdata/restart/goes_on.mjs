// A program that counts, while the server is stopped and started again by somebody else:
// its stream ends at once with an error, and can be taken up again by its pid.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 300_000 })

console.log('it counts')
let last = 0
let enough
const counted = new Promise((resolve) => { enough = resolve })
const heard = (text) => {
  for (const line of text.split('\n').filter(Boolean)) last = Number(line)
  if (last > 20) enough()
}
const counter = await sandbox.commands.run('n=0; while :; do n=$((n+1)); echo $n | tee -a /tmp/count; sleep 0.01; done', { background: true, onStdout: heard, timeoutMs: 0 })
await counted

console.log('a WebSocket is open')
await sandbox.files.write('/tmp/ws.py', `import base64, hashlib, socket
s = socket.create_server(("0.0.0.0", 8000))
print("listening", flush=True)
c, _ = s.accept()
key = next(l.split(": ")[1] for l in c.recv(4096).decode().split("\\r\\n") if l.lower().startswith("sec-websocket-key"))
accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
c.sendall(f"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: {accept}\\r\\n\\r\\n".encode())
c.sendall(b"\\x81\\x05hello")
print(c.recv(4096)[0] & 15, flush=True)
`)
const server = await new Promise((resolve, reject) => {
  sandbox.commands.run('exec python3 /tmp/ws.py >/tmp/ws.out', { background: true, timeoutMs: 0 }).then(resolve, reject)
})
await sandbox.commands.run('until grep -q listening /tmp/ws.out; do sleep 0.01; done')
const socket = new WebSocket(`${process.env.E2B_SANDBOX_URL.replace(/^http/, 'ws')}/sandbox/${sandbox.sandboxId}/8000/`)
await new Promise((resolve, reject) => { socket.onmessage = resolve; socket.onerror = reject })
const closed = new Promise((resolve) => { socket.onclose = resolve })

console.log('the streams end with an error')
const serverEnded = server.wait().catch((e) => e)
const ended = counter.wait().then(() => { throw new Error('the stream has ended well') }, (e) => ({ e, at: Date.now() }))
const asked = Date.now()
writeFileSync('counting', '') // whoever stops the server waits for this
const { e, at } = await ended
assert.match(String(e), /the server is restarting; connect again/, `${e}`)
assert.ok(at - asked < 5000, `after ${at - asked} ms`)
const before = last
assert.match(String(await serverEnded), /the server is restarting; connect again/)
const { code, reason, wasClean } = await closed
assert.deepEqual([code, reason, wasClean], [1012, 'the server is restarting; connect again', true])

console.log('it is taken up again')
let again
for (const until = Date.now() + 60_000; !again;) {
  try {
    again = await sandbox.commands.connect(counter.pid, { onStdout: heard, timeoutMs: 0 })
  } catch (e) {
    assert.ok(Date.now() < until, `it cannot be connected to: ${e}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}
await new Promise((resolve) => {
  const look = setInterval(() => { if (last > before + 20) { clearInterval(look); resolve() } }, 10)
})

console.log('what was inside has heard the answer to the close frame')
assert.equal(await sandbox.files.read('/tmp/ws.out'), 'listening\n8\n')

console.log('no number is missing')
assert.equal(await sandbox.commands.kill(counter.pid), true)
await assert.rejects(again.wait())
const numbers = (await sandbox.files.read('/tmp/count')).trim().split('\n').map(Number)
assert.ok(numbers.length >= last)
numbers.forEach((n, i) => assert.equal(n, i + 1))

assert.equal(await sandbox.kill(), true)
