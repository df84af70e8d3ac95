// What runs goes on: through a pause, and in what is made from a snapshot.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
await sandbox.files.write('counter.py', `
import os, secrets, socketserver, threading, time, http.server
identity, n = secrets.token_hex(16), 0
def count():
    global n
    while True:
        n += 1
        time.sleep(0.01)
threading.Thread(target=count, daemon=True).start()
class Answer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(f"{identity} {os.getpid()} {n}".encode())
http.server.HTTPServer(("127.0.0.1", 8000), Answer).serve_forever()
`)
const started = await sandbox.commands.run('exec python3 counter.py', { background: true, timeoutMs: 0 })
const ask = async (s) => {
  const { stdout } = await s.commands.run('until curl -sf http://127.0.0.1:8000; do sleep 0.02; done')
  const [identity, pid, n] = stdout.trim().split(' ')
  return { identity, pid: Number(pid), n: Number(n) }
}
const before = await ask(sandbox)
assert.equal(before.pid, started.pid)

console.log('through a pause')
assert.equal(await sandbox.pause(), true)
const back = await Sandbox.connect(sandbox.sandboxId)
const after = await ask(back)
assert.deepEqual([after.identity, after.pid], [before.identity, before.pid])
assert.ok(after.n > before.n)
assert.ok((await back.commands.list()).some((p) => p.pid === before.pid))

console.log('through many pauses')
let last = after
for (let i = 0; i < 3; i++) {
  await back.files.write(`round-${i}`, 'x'.repeat(100_000 * (i + 1)))
  await back.pause()
  await back.connect()
  const now = await ask(back)
  assert.deepEqual([now.identity, now.pid], [before.identity, before.pid])
  assert.ok(now.n > last.n)
  last = now
}
assert.deepEqual((await back.files.list('.')).filter((e) => e.name.startsWith('round-')).map((e) => e.size), [100_000, 200_000, 300_000])

console.log('in what is made from a snapshot, which outlives its source')
const { snapshotId } = await back.createSnapshot()
const source = await ask(back)
assert.equal(source.identity, before.identity, 'the source goes on')
assert.equal(await back.kill(), true)
const copies = await Promise.all([1, 2].map(() => Sandbox.create(snapshotId, { timeoutMs: 120_000 })))
for (const copy of copies) {
  const its = await ask(copy)
  assert.deepEqual([its.identity, its.pid], [before.identity, before.pid])
  assert.ok(its.n >= last.n)
}
assert.notEqual(copies[0].sandboxId, copies[1].sandboxId)

console.log('a copy answers on, and its process can be followed and ended')
const handle = await copies[0].commands.connect(before.pid)
assert.equal(await handle.kill(), true)
await assert.rejects(handle.wait())
assert.equal((await ask(copies[1])).identity, before.identity, 'the other one has its own')

for (const copy of copies) assert.equal(await copy.kill(), true)
assert.equal(await Sandbox.deleteSnapshot(snapshotId), true)
