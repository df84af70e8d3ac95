// Files: any bytes, any size, each way of sending them, folders, users, signed links.
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { Sandbox, NotFoundError, InvalidArgumentError, FileType } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 300_000 })
const { files } = sandbox
const sha = (data) => createHash('sha256').update(data).digest('hex')
const inside = async (path) => (await sandbox.commands.run(`sha256sum ${path}`)).stdout.split(' ')[0]

console.log('any bytes, each way')
const bytes = Buffer.concat([Buffer.from(Array.from({ length: 256 }, (_, i) => i)), randomBytes(100_000)])
for (const [i, opts] of [{}, { useOctetStream: true }, { gzip: true }].entries()) {
  const path = `ways/deep/${i}.bin`
  const info = await files.write(path, new Blob([bytes]), opts)
  assert.deepEqual([info.name, info.type, info.path], [`${i}.bin`, FileType.FILE, `/home/user/${path}`])
  assert.equal(await inside(path), sha(bytes))
  assert.equal(sha(await files.read(path, { format: 'bytes' })), sha(bytes))
  assert.equal(sha(await files.read(path, { format: 'bytes', gzip: true })), sha(bytes))
}
await files.write('empty', '')
assert.equal(await files.read('empty'), '')
const name = 'имя с пробелом, "кавычки" & %41?#.txt'
await files.write(name, 'odd')
assert.equal(await files.read(name), 'odd')
assert.ok((await files.list('.')).some((e) => e.name === name))

console.log('several at once')
const wrote = await files.write([{ path: 'a/1', data: 'one' }, { path: '/tmp/2', data: new TextEncoder().encode('two').buffer }])
assert.deepEqual(wrote.map((w) => w.path), ['/home/user/a/1', '/tmp/2'])
assert.deepEqual([await files.read('a/1'), await files.read('/tmp/2')], ['one', 'two'])

console.log('64 MB, as a stream')
const piece = randomBytes(1 << 20)
const sent = createHash('sha256')
let n = 0
await files.write('big', new ReadableStream({
  pull(c) { if (n++ === 64) return c.close(); sent.update(piece); c.enqueue(new Uint8Array(piece)) },
}))
const want = sent.digest('hex')
assert.equal((await files.getInfo('big')).size, 64 << 20)
assert.equal(await inside('big'), want)
const got = createHash('sha256')
for await (const chunk of await files.read('big', { format: 'stream' })) got.update(chunk)
assert.equal(got.digest('hex'), want)

console.log('folders')
assert.equal(await files.makeDir('d/e/f'), true)
assert.equal(await files.makeDir('d/e/f'), false)
await files.write('d/e/f/x', 'x')
assert.deepEqual((await files.list('d', { depth: 3 })).map((e) => [e.path, e.type]),
  [['/home/user/d/e', 'dir'], ['/home/user/d/e/f', 'dir'], ['/home/user/d/e/f/x', 'file']])
assert.equal((await files.rename('d/e/f/x', 'd/y')).path, '/home/user/d/y')
assert.equal(await files.exists('d/e/f/x'), false)
assert.equal(await files.exists('d/y'), true)
await files.remove('d')
assert.equal(await files.exists('d'), false)
await assert.rejects(files.list('d'), NotFoundError)
await assert.rejects(files.rename('d', 'g'), NotFoundError)
await assert.rejects(files.read('/home'), InvalidArgumentError)

console.log('what is known of a file')
await sandbox.commands.run('printf 12345 >f; chmod 640 f; ln -s f link')
const info = await files.getInfo('f')
assert.deepEqual([info.name, info.type, info.path, info.size, info.mode, info.permissions, info.owner, info.group],
  ['f', 'file', '/home/user/f', 5, 0o640, '-rw-r-----', 'user', 'user'])
assert.ok(Math.abs(info.modifiedTime.getTime() - Date.now()) < 60_000)
assert.equal((await files.getInfo('link')).symlinkTarget, '/home/user/f')
assert.deepEqual((await files.list('.')).filter((e) => e.name === 'link').map((e) => e.symlinkTarget), ['/home/user/f'])
assert.ok((await files.read('/proc/version')).includes('Linux'), 'a file of unknown length is whole')

console.log('users')
await files.write('/root/secret', 's', { user: 'root' })
assert.equal((await files.getInfo('/root/secret', { user: 'root' })).owner, 'root')
await assert.rejects(files.write('/root/mine', 'm'))
await assert.rejects(files.read('/root/secret'))

console.log('what a file is said to be')
const tagged = await files.write('tagged', 'x', { metadata: { Purpose: 'test' } })
assert.deepEqual(tagged.metadata, { purpose: 'test' })
assert.deepEqual((await files.getInfo('tagged')).metadata, { purpose: 'test' })

console.log('signed links, without a key or an id')
const link = await sandbox.downloadUrl('a/1')
assert.equal(await (await fetch(link)).text(), 'one')
assert.equal((await fetch(link.replace(/signature=v1_.../, 'signature=v1_AAA'))).ok, false)
assert.equal((await fetch(link.replace('1&', '2&'))).ok, false)
const form = new FormData()
form.append('file', new Blob(['uploaded']), 'ignored.txt')
assert.equal((await fetch(await sandbox.uploadUrl('up.txt', { useSignatureExpiration: 60 }), { method: 'POST', body: form })).status, 200)
assert.equal(await files.read('up.txt'), 'uploaded')
const named = new FormData()
named.append('file', new Blob(['named']), 'names/of/its/own.txt')
assert.equal((await fetch(await sandbox.uploadUrl(), { method: 'POST', body: named })).status, 200)
assert.equal(await files.read('names/of/its/own.txt'), 'named')

assert.equal(await sandbox.kill(), true)
