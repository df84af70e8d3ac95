// A folder that is watched: each kind of change, folders made meanwhile, what is known
// of what has changed, the end, and what cannot be watched.
import assert from 'node:assert/strict'
import { Sandbox, AuthenticationError, FileNotFoundError, FileType, InvalidArgumentError } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 300_000 })
const { files } = sandbox
const run = (cmd) => sandbox.commands.run(cmd)

// Watched collects events, and waits for one.
class Watched {
  events = []
  waiting = []
  ended = new Promise((resolve) => { this.exit = resolve })
  async on(path, opts) {
    this.handle = await files.watchDir(path, (event) => {
      this.events.push(event)
      this.waiting = this.waiting.filter(({ fits, resolve }) => !fits(event) || resolve(event))
    }, { onExit: (error) => this.exit(error), ...opts })
    return this
  }
  until(type, name) {
    const fits = (e) => e.type === type && e.name === name
    const there = this.events.find(fits)
    return there ?? new Promise((resolve) => { this.waiting.push({ fits, resolve }) })
  }
}

console.log('each kind of change')
await run('mkdir -p w/there; echo old >w/old; echo x >w/there/below')
const plain = await new Watched().on('w')
await files.write('w/new', 'text')
await plain.until('create', 'new')
await plain.until('write', 'new')
await run('chmod 600 w/old')
await plain.until('chmod', 'old')
await files.rename('w/old', 'w/newer')
await plain.until('rename', 'old')
await plain.until('create', 'newer')
await files.remove('w/new')
await plain.until('remove', 'new')
await files.makeDir('w/folder')
await plain.until('create', 'folder')
await files.write('w/there/below', 'changed')
await files.write('w/folder/below', 'x')
await files.write('w/last', '')
await plain.until('create', 'last')
assert.ok(plain.events.every((e) => !e.name.includes('/')), 'what is below is not seen')
assert.ok(plain.events.every((e) => e.entry === undefined), 'nothing more is said where it is not asked for')
await plain.handle.stop()
const seen = plain.events.length
await files.write('w/after', '')

console.log('all that is below, folders made meanwhile too')
await run('mkdir -p deep/a/b')
const all = await new Watched().on('deep', { recursive: true, timeoutMs: 0 })
await files.write('deep/a/b/f', 'x')
await all.until('create', 'a/b/f')
await all.until('write', 'a/b/f')
await files.makeDir('deep/new')
await all.until('create', 'new')
await files.write('deep/new/f', 'x')
await all.until('write', 'new/f')
await run('mkdir -p deep/at/once/all && echo x >deep/at/once/all/f')
await all.until('create', 'at')
await run('echo more >>deep/at/once/all/f; rm -r deep/new')
await all.until('write', 'at/once/all/f')
await all.until('remove', 'new/f')
await all.until('remove', 'new')
assert.equal(plain.events.length, seen, 'who has stopped hears nothing')
await all.handle.stop()

console.log('what is known of what has changed')
await run('mkdir e')
const known = await new Watched().on('e', { includeEntry: true })
await run('printf 12345 >e/f; chmod 640 e/f')
await known.until('create', 'f')
const chmod = await known.until('chmod', 'f')
assert.deepEqual([chmod.entry.path, chmod.entry.type, chmod.entry.size, chmod.entry.mode, chmod.entry.owner], ['/home/user/e/f', FileType.FILE, 5, 0o640, 'user'])
await files.remove('e/f')
assert.equal((await known.until('remove', 'f')).entry, undefined)
await known.handle.stop()

console.log('its time is over')
const short = await new Watched().on('w', { timeoutMs: 700 })
assert.ok(await short.ended, 'the client hears why')

console.log('what cannot be watched')
const nothing = () => {}
await assert.rejects(files.watchDir('nowhere', nothing), FileNotFoundError)
await assert.rejects(files.watchDir('w/last', nothing), InvalidArgumentError)
await assert.rejects(files.watchDir('w', nothing, { user: 'nobody-here' }), AuthenticationError)

console.log('the sandbox is killed')
const last = await new Watched().on('w', { timeoutMs: 0 })
assert.equal(await sandbox.kill(), true)
assert.ok(await last.ended, 'the client hears that it is over')
