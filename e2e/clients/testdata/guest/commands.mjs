// Commands in every detail that a client can see: what they start with, how they are
// fed, found and ended, what is said of their end, and which error is which.
import assert from 'node:assert/strict'
import { Sandbox, CommandExitError, NotFoundError, TimeoutError } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 300_000, envs: { A: 'sandbox', B: 'sandbox' } })
const { commands } = sandbox
const out = async (cmd, opts) => (await commands.run(cmd, opts)).stdout
const gone = (name) => out(`until ! pgrep -f '^${name}'; do sleep 0.01; done >/dev/null`, { timeoutMs: 20_000 })

console.log('what a command starts with')
assert.equal(await out('shopt -q login_shell && echo "$HOME $USER $LOGNAME $PWD $E2B_SANDBOX"'), '/home/user user user /home/user true\n')
assert.equal(await out('echo "$HOME $USER $LOGNAME $PWD"', { user: 'root' }), '/root root root /root\n')
assert.match(await out('echo $PATH'), /(^|:)\/usr\/bin(:|\n)/)
assert.equal(await out('echo $A $B $C', { envs: { B: 'command', C: 'a b "c" $d \n沙' } }), 'sandbox command a b "c" $d 沙\n')
assert.equal(await out('echo "$C"', { envs: { C: 'a b "c" $d \n沙' } }), 'a b "c" $d \n沙\n')
assert.equal(await out('echo $C$B', { user: 'root' }), 'sandbox\n', 'nothing of the command before')
await sandbox.files.makeDir('sub/dir')
assert.equal(await out('pwd', { cwd: 'sub' }), '/home/user/sub\n')
assert.equal(await out('pwd', { cwd: '~/sub/dir' }), '/home/user/sub/dir\n')
assert.equal(await out('pwd', { cwd: '/tmp' }), '/tmp\n')

console.log('how a command has ended')
const ended = async (cmd) => {
  try { await commands.run(cmd) } catch (e) { if (e instanceof CommandExitError) return e; throw e }
  assert.fail(`${cmd} has ended well`)
}
const seven = await ended('echo o; echo e >&2; exit 7')
assert.deepEqual([seven.exitCode, seven.stdout, seven.stderr], [7, 'o\n', 'e\n'])
assert.match(seven.error, /exit status 7/)
const killed = await ended('kill -9 $$')
assert.equal(killed.exitCode, -1)
assert.match(killed.error, /signal: killed/)
assert.match((await ended('kill -TERM $$')).error, /signal: terminated/)
assert.equal((await ended('(kill -9 $BASHPID)')).exitCode, 137)

console.log('output: in order, apart, without a last newline, and of what was left behind')
const both = await commands.run('for i in 1 2 3; do echo o$i; echo e$i >&2; done; printf end')
assert.deepEqual([both.stdout, both.stderr], ['o1\no2\no3\nend', 'e1\ne2\ne3\n'])
const line = await out(`head -c 3000000 /dev/zero | tr '\\0' x`)
assert.equal(line.length, 3_000_000)
assert.match(line, /^x+$/)
assert.equal(await out(`head -c 4 /dev/urandom >/dev/null; printf '\\xff\\xfe'`), '\ufffd\ufffd', 'bytes that are no text')

console.log('input')
const count = await commands.run('wc -c', { background: true, stdin: true })
const piece = new Uint8Array(300_000).map((_, i) => i % 251)
for (let i = 0; i < 4; i++) await count.sendStdin(piece)
await commands.closeStdin(count.pid)
assert.equal((await count.wait()).stdout.trim(), '1200000')
const asks = await commands.run('read -r line; echo "got $line"', { background: true, stdin: true })
assert.ok((await commands.list()).some((p) => p.pid === asks.pid), 'it waits for its input')
await commands.sendStdin(asks.pid, 'a line\n')
assert.equal((await asks.wait()).stdout, 'got a line\n')
assert.equal(await out('read -r line || echo closed'), 'closed\n', 'input is closed where it is not asked for')
assert.equal(await out('read -r line || echo closed', { stdin: false }), 'closed\n')
await assert.rejects(commands.sendStdin(999_999, 'x'), NotFoundError)
await assert.rejects(commands.closeStdin(999_999), NotFoundError)

console.log('list and connect')
const loop = await commands.run('n=0; while :; do n=$((n+1)); echo $n; sleep 0.02; done', { background: true, envs: { MARK: 'mine' }, cwd: '/tmp', timeoutMs: 0 })
const listed = (await commands.list()).find((p) => p.pid === loop.pid)
assert.deepEqual([listed.cmd, listed.args.slice(0, 2), listed.envs.MARK, listed.cwd], ['/bin/bash', ['-l', '-c'], 'mine', '/tmp'])
await loop.disconnect()
const two = await Promise.all([1, 2].map(() => new Promise((resolve, reject) => {
  let seen = ''
  let handle
  commands.connect(loop.pid, { onStdout: (text) => { seen += text; if (handle && seen.split('\n').length > 5) resolve({ handle, seen }) } }).then((h) => { handle = h }, reject)
})))
for (const { seen } of two) {
  const n = seen.trim().split('\n').map(Number)
  n.forEach((v, i) => assert.equal(v, n[0] + i, 'every number, once'))
}
assert.equal(await loop.kill(), true)
for (const { handle } of two) await assert.rejects(handle.wait(), (e) => e instanceof CommandExitError && /killed/.test(e.error))
assert.equal(await loop.kill(), false)
await assert.rejects(commands.connect(999_999), (e) => e instanceof NotFoundError && /process with pid 999999 not found/.test(e.message))
const brief = await commands.run('echo early; exit 7', { background: true })
await assert.rejects(brief.wait(), (e) => e.exitCode === 7)
const late = await commands.connect(brief.pid)
await assert.rejects(late.wait(), (e) => e instanceof CommandExitError && e.exitCode === 7, 'who comes late hears the end')

console.log('a kill takes the whole tree, and is prompt')
const tree = await commands.run('sleep 4321 & (sleep 4321 & sleep 4321) & setsid sleep 4321 & sleep 4321', { background: true, timeoutMs: 0 })
await out(`until [ $(pgrep -fc '^sleep 4321') = 5 ]; do sleep 0.01; done`)
assert.equal(await tree.kill(), true)
await gone('sleep 4321')

console.log('deadlines: of the client alone, of the whole tree, and only where there is one')
await assert.rejects(commands.run('setsid sleep 4322 & sleep 4322', { timeoutMs: 700 }), TimeoutError)
await gone('sleep 4322')
const short = await commands.run('sleep 4323', { background: true, timeoutMs: 700 })
await assert.rejects(short.wait(), TimeoutError)
await gone('sleep 4323')
assert.ok(!(await commands.list()).some((p) => p.pid === short.pid))
const long = await commands.run('sleep 2; echo whole', { background: true, timeoutMs: 0 })
const quick = await commands.connect(long.pid, { timeoutMs: 500 })
await assert.rejects(quick.wait(), TimeoutError)
assert.equal((await long.wait()).stdout, 'whole\n', 'the deadline of one who only listens is his own')

console.log('sixty at once')
const many = await Promise.all(Array.from({ length: 60 }, (_, i) => commands.run(`echo ${i}; sleep 0.1; echo ${i} >&2; exit ${i % 2}`).catch((e) => e)))
many.forEach((r, i) => assert.deepEqual([r.stdout, r.stderr, r.exitCode], [`${i}\n`, `${i}\n`, i % 2]))

assert.equal(await sandbox.kill(), true)
