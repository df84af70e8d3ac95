// A terminal: made, fed, resized, interrupted, left and taken up again, and ended.
import assert from 'node:assert/strict'
import { Sandbox, AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, TimeoutError } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 300_000, envs: { A: 'sandbox' } })
const { pty } = sandbox

// A screen collects what a terminal shows, and waits for words in it.
class Screen {
  text = ''
  waiting = []
  hear = (data) => {
    this.text += Buffer.from(data).toString()
    this.waiting = this.waiting.filter(({ word, resolve }) => !this.text.includes(word) || resolve())
  }
  until = (word) => new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`no ${JSON.stringify(word)} in ${JSON.stringify(this.text)}`)), 30_000)
    this.waiting.push({ word, resolve: () => { clearTimeout(late); resolve() } })
    this.hear('')
  })
}
const type = (pid, text) => pty.sendInput(pid, Buffer.from(text))

console.log('what it starts with')
const screen = new Screen()
const term = await pty.create({ cols: 80, rows: 24, onData: screen.hear, timeoutMs: 0, cwd: '/tmp', envs: { B: 'terminal' } })
await type(term.pid, 'echo "<$TERM $LANG $A $B $(id -un) $PWD $(stty size)>" | tr "<>" "[]"\n')
await screen.until('[xterm-256color C.UTF-8 sandbox terminal user /tmp 24 80]')
const listed = (await sandbox.commands.list()).find((p) => p.pid === term.pid)
assert.deepEqual([listed.cmd, listed.args], ['/bin/bash', ['-i', '-l']])

console.log('resized: the program is told')
await type(term.pid, `python3 -c 'import os, signal
signal.signal(signal.SIGWINCH, lambda *_: (print("now", *os.get_terminal_size()), os._exit(0)))
print("wai" + "ting", flush=True)
while True: signal.pause()'\n`)
await screen.until('waiting')
await pty.resize(term.pid, { cols: 133, rows: 44 })
await screen.until('now 133 44')

console.log('interrupted')
await type(term.pid, `sh -c 'echo slee""ping; exec sleep 1000'\n`) // that it has the terminal, it says
await screen.until('sleeping\r\n')
await type(term.pid, '\x03')
await type(term.pid, 'echo "stat"us $?\n')
await screen.until('status 130')

console.log('left, and taken up again')
await term.disconnect()
await type(term.pid, 'x=kept; echo "in be"tween\n')
const later = new Screen()
const again = await pty.connect(term.pid, { onData: later.hear })
await type(term.pid, 'echo "it is $x"\n')
await later.until('it is kept')

console.log('any bytes')
await type(term.pid, `printf 'B\\xc3\\xa9\\xf0\\x9f\\xa7\\x8aE\\n'\n`)
await later.until('Bé🧊E')

console.log('ended')
await type(term.pid, 'exit 5\n')
await assert.rejects(again.wait(), (e) => e instanceof CommandExitError && e.exitCode === 5)
assert.equal(await pty.kill(term.pid), false)

console.log('killed, with what runs in it')
const root = new Screen()
const other = await pty.create({ cols: 80, rows: 24, user: 'root', onData: root.hear, timeoutMs: 0 })
await type(other.pid, 'id -un; sleep 7654 & sleep 7654\n')
await root.until('root\r\n')
await sandbox.commands.run(`until [ $(pgrep -fc '^sleep 7654') = 2 ]; do sleep 0.01; done`)
assert.equal(await pty.kill(other.pid), true)
await assert.rejects(other.wait(), (e) => e instanceof CommandExitError && /killed/.test(e.error))
await sandbox.commands.run(`until ! pgrep -f '^sleep 7654'; do sleep 0.01; done >/dev/null`, { timeoutMs: 20_000 })

console.log('its time is over')
const short = await pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 700 })
await assert.rejects(short.wait(), TimeoutError)
await sandbox.commands.run(`while kill -0 ${short.pid}; do sleep 0.01; done 2>/dev/null`, { user: 'root', timeoutMs: 20_000 })

console.log('what is not there')
await assert.rejects(pty.connect(999_999, { onData: () => {} }), NotFoundError)
await assert.rejects(pty.resize(999_999, { cols: 1, rows: 1 }), NotFoundError)
await assert.rejects(type(999_999, 'x'), NotFoundError)
assert.equal(await pty.kill(999_999), false)
await assert.rejects(pty.create({ cols: 80, rows: 24, onData: () => {}, user: 'nobody-here' }), AuthenticationError)
await assert.rejects(pty.create({ cols: 80, rows: 24, onData: () => {}, cwd: '/nowhere' }), InvalidArgumentError)

assert.equal(await sandbox.kill(), true)
