// Commands: what they are given, what they say, however much it is, and how they are
// found, fed and ended.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { Sandbox, CommandExitError, InvalidArgumentError, AuthenticationError, TimeoutError } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 300_000, envs: { A: 'sandbox', B: 'sandbox' } })
const { commands } = sandbox

console.log('user, directory, environment')
assert.equal((await commands.run('id -un; pwd', { user: 'root', cwd: '/tmp' })).stdout, 'root\n/tmp\n')
assert.equal((await commands.run('echo $A $B', { envs: { B: 'command' } })).stdout, 'sandbox command\n')
assert.equal((await commands.run('echo $A $B')).stdout, 'sandbox sandbox\n', 'a command leaves nothing in the next')
await assert.rejects(commands.run('true', { user: 'nobody-here' }), AuthenticationError)
await assert.rejects(sandbox.pty.create({ cols: 80, rows: 24, user: 'nobody-here', onData() {} }), AuthenticationError)
await assert.rejects(commands.run('true', { cwd: '/nowhere' }), InvalidArgumentError)
assert.match((await commands.run('echo $PATH:$HOME:$USER:$LOGNAME:$E2B_SANDBOX')).stdout, /:\/home\/user:user:user:true\n$/)
await assert.rejects(commands.run('no-such-program'), (e) => e instanceof CommandExitError && e.exitCode === 127)

console.log('5 MB of output are whole')
const size = 5 << 20
const sum = createHash('sha256')
let length = 0
const big = await commands.run(`python3 -c 'import sys
line = "".join(chr(32 + i % 95) for i in range(1023)) + chr(10)
for _ in range(${size} // 1024): sys.stdout.write(line)'`, { onStdout: (text) => { sum.update(text); length += text.length } })
const line = Array.from({ length: 1023 }, (_, i) => String.fromCharCode(32 + (i % 95))).join('') + '\n'
const want = createHash('sha256')
for (let i = 0; i < size / 1024; i++) want.update(line)
assert.equal(length, size)
assert.equal(sum.digest('hex'), want.digest('hex'))
assert.equal(big.stdout.length, size)

console.log('characters are whole, wherever they are cut')
const text = await commands.run(`python3 -c 'print("沙箱🧊é" * 40000, end="")'`)
assert.equal(text.stdout, '沙箱🧊é'.repeat(40000))

console.log('input')
const cat = await commands.run('cat; echo "end of input"', { background: true, stdin: true })
await cat.sendStdin('one\n')
await commands.sendStdin(cat.pid, 'two\n')
await cat.closeStdin()
assert.equal((await cat.wait()).stdout, 'one\ntwo\nend of input\n')
assert.equal((await commands.run('cat; echo none')).stdout, 'none\n', 'without input it is closed')

console.log('list, connect, disconnect, kill')
const loop = await commands.run('n=0; while :; do n=$((n+1)); echo $n; sleep 0.02; done', { background: true })
assert.ok((await commands.list()).some((p) => p.pid === loop.pid && p.cmd === '/bin/bash' && p.args[0] === '-l'))
await loop.disconnect()
const again = await new Promise((resolve, reject) => {
  commands.connect(loop.pid, { onStdout: () => resolve(handle) }).then((h) => { handle = h }, reject)
  let handle
})
assert.equal(await commands.kill(loop.pid), true)
await assert.rejects(again.wait(), (e) => e instanceof CommandExitError && /killed/.test(e.error))
assert.equal(await commands.kill(loop.pid), false)
assert.equal(await commands.kill(999_999), false)
assert.ok(!(await commands.list()).some((p) => p.pid === loop.pid))

console.log('of what nobody reads the last MiB is kept')
const flood = await commands.run('until [ -e /tmp/go ]; do sleep 0.01; done; head -c 3000000 /dev/zero | tr "\\0" x; touch /tmp/written; sleep 60; true', { background: true })
await flood.disconnect()
await commands.run('touch /tmp/go; until [ -e /tmp/written ]; do sleep 0.01; done')
let kept = ''
const late = await commands.connect(flood.pid, { onStdout: (text) => { kept += text } })
while (kept.length < 1 << 20) await new Promise((resolve) => setTimeout(resolve, 5))
assert.equal(await commands.kill(flood.pid), true)
await assert.rejects(late.wait(), (e) => e instanceof CommandExitError && /killed/.test(e.error))
assert.equal(kept, 'x'.repeat(1 << 20), 'the client knows neither offsets nor what is dropped')

console.log('a command whose time is over is ended, with its children')
await assert.rejects(commands.run('sleep 1234 & sleep 1234', { timeoutMs: 1000 }), TimeoutError)
await assert.rejects(commands.run('until ! pgrep -x sleep; do sleep 0.01; done; pgrep -x sleep'), (e) => e.exitCode === 1 && e.stdout !== undefined)

console.log('a terminal is connected to, and killed with what runs in it')
let first = ''
let then = ''
const shell = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 60_000, onData: (data) => { first += Buffer.from(data).toString() } })
await sandbox.pty.sendInput(shell.pid, Buffer.from('sleep 4321 & echo o""ne\n'))
while (!first.includes('one')) await new Promise((resolve) => setTimeout(resolve, 5))
await shell.disconnect()
const shellAgain = await sandbox.pty.connect(shell.pid, { onData: (data) => { then += Buffer.from(data).toString() } })
await sandbox.pty.sendInput(shell.pid, Buffer.from('echo t""wo\n'))
while (!then.includes('two')) await new Promise((resolve) => setTimeout(resolve, 5))
assert.ok(!then.includes('one'), then)
assert.equal(await sandbox.pty.kill(shell.pid), true)
await assert.rejects(shellAgain.wait(), (e) => e instanceof CommandExitError && /killed/.test(e.error))
assert.equal(await sandbox.pty.kill(shell.pid), false)
await commands.run('while pgrep -f "sleep 432[1]"; do sleep 0.01; done >/dev/null', { timeoutMs: 10_000 })

console.log('a terminal')
let seen = ''
const pty = await new Promise((resolve, reject) => {
  sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 60_000, onData: (data) => { seen += Buffer.from(data).toString() } }).then(resolve, reject)
})
await sandbox.pty.resize(pty.pid, { cols: 101, rows: 33 })
await sandbox.pty.sendInput(pty.pid, Buffer.from('stty size; tty; exit 5\n'))
await assert.rejects(pty.wait(), (e) => e.exitCode === 5)
assert.match(seen, /33 101/)
assert.match(seen, /\/dev\/pts\//)

assert.equal(await sandbox.kill(), true)
