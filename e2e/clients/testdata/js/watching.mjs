// Watching directories, and a disk that is full while it is written to.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { Sandbox, FilesystemEventType, NotFoundError, InvalidArgumentError, SandboxError, NotEnoughSpaceError } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 300_000 })
const { files } = sandbox

// Until the events have what is wanted of them.
const heard = []
let wake = () => {}
const hear = (e) => { heard.push(e); wake() }
async function until(what, ok) {
  const late = setTimeout(() => { console.error('not heard:', what, heard); process.exit(1) }, 20_000)
  while (!heard.some(ok)) await new Promise((r) => { wake = r })
  clearTimeout(late)
}
const is = (type, name) => (e) => e.type === type && e.name === name

console.log('a directory')
await files.makeDir('flat/below')
await files.write('flat/f', 'old')
let watch = await files.watchDir('flat', hear)
await files.write('flat/f', 'new')
await until('write', is(FilesystemEventType.WRITE, 'f'))
await files.write('flat/below/unseen', 'x')
await files.rename('flat/f', 'flat/g')
await until('rename', is(FilesystemEventType.RENAME, 'f'))
await until('its new name', is(FilesystemEventType.CREATE, 'g'))
await sandbox.commands.run('chmod 600 flat/g')
await until('chmod', is(FilesystemEventType.CHMOD, 'g'))
await files.remove('flat/g')
await until('remove', is(FilesystemEventType.REMOVE, 'g'))
assert.ok(!heard.some((e) => e.name.includes('unseen')))
await watch.stop()

console.log('all below it, with what is there')
heard.length = 0
let ended
watch = await files.watchDir('flat', hear, { recursive: true, includeEntry: true, timeoutMs: 0, onExit: (err) => { ended = err } })
await files.write('flat/new/deep/f', '12345')
await until('a file in a new directory', (e) => e.name === 'new/deep/f')
await sandbox.commands.run('printf 1234567 >flat/new/deep/f')
await until('its entry', (e) => e.name === 'new/deep/f' && e.type === FilesystemEventType.WRITE && e.entry?.size === 7 && e.entry.path === '/home/user/flat/new/deep/f')
await sandbox.commands.run('rm flat/new/deep/f')
await until('remove', is(FilesystemEventType.REMOVE, 'new/deep/f'))
assert.equal(heard.find(is(FilesystemEventType.REMOVE, 'new/deep/f')).entry, undefined)
await watch.stop()
assert.equal(ended, undefined)

console.log('what cannot be watched')
await assert.rejects(files.watchDir('none', hear), NotFoundError)
await assert.rejects(files.watchDir('/etc/passwd', hear), InvalidArgumentError)
await assert.rejects(files.watchDir('/root', hear), SandboxError)

console.log('a full disk')
await sandbox.commands.run('dd if=/dev/zero of=/dev/shm/fill bs=1M count=250 2>/dev/null', { user: 'root' })
await assert.rejects(files.write('/dev/shm/big', new Blob([randomBytes(64 << 20)])), NotEnoughSpaceError)
await assert.rejects(files.write('/dev/shm/big', new Blob([randomBytes(64 << 20)]), { useOctetStream: true }), NotEnoughSpaceError)
await sandbox.commands.run('rm -f /dev/shm/fill /dev/shm/big', { user: 'root' })
await files.write('/dev/shm/big', 'there is room')

assert.equal(await sandbox.kill(), true)
