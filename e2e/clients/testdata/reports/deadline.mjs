// A server whose time is over holds its port no longer, nor do its children, and none
// of them comes back with a pause and a resume.
import assert from 'node:assert/strict'
import { Sandbox, TimeoutError } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
const { commands } = sandbox
await sandbox.files.write('server.py', `
import os, signal, socket, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", 8000)); s.listen()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)
`)
await assert.rejects(commands.run('python3 server.py & exec python3 -c "import time; time.sleep(1000)"', { timeoutMs: 1500 }), TimeoutError)
const free = `until python3 -c 'import socket; socket.create_server(("127.0.0.1", 8000))' 2>/dev/null; do sleep 0.02; done; ! pgrep -f '^python3 server.py'`
await commands.run(free, { timeoutMs: 20_000 })
await sandbox.pause()
await sandbox.connect()
await commands.run(free, { timeoutMs: 20_000 })

console.log('a command in the background, without a time, outlives whoever started it')
const loop = await commands.run('echo $$; exec sleep 1000', { background: true, timeoutMs: 0 })
await loop.disconnect()
await sandbox.pause()
const back = await Sandbox.connect(sandbox.sandboxId)
const again = await back.commands.connect(loop.pid, { timeoutMs: 0 })
assert.equal(await again.kill(), true)
assert.equal(await sandbox.kill(), true)
