// Who gets in: access tokens, signed links without an id, traffic tokens; of copies, and
// after a pause and a rollback.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { Sandbox } from 'e2b'

const { E2B_API_URL: api, E2B_API_KEY: key, E2B_SANDBOX_URL: data } = process.env
const create = (template = 'base') => Sandbox.create(template, { timeoutMs: 300_000, network: { allowPublicTraffic: false } })
const call = async (path, body) => {
  const r = await fetch(`${api}${path}`, { method: 'POST', headers: { 'X-API-Key': key, 'Content-Type': 'application/json' }, body: JSON.stringify(body) })
  assert.ok(r.ok, `${path}: ${r.status} ${await r.clone().text()}`)
  return r.json()
}
const envd = (sandbox, path, opts = {}) => fetch(`${data}${path}`, { ...opts, headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983', ...opts.headers } })
const said = async (answer) => { const r = await answer; const text = await r.text(); return `${r.status} ${r.headers.get('content-type')?.startsWith('application/json') ? JSON.parse(text).message : text}` }
const list = (sandbox, token) => said(envd(sandbox, '/process.Process/List', { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json', ...(token && { 'X-Access-Token': token }) } }))
const sign = (path, op, user, token, expires) =>
  'v1_' + createHash('sha256').update([path, op, user, token, ...(expires ? [expires] : [])].join(':')).digest('base64').replace(/=+$/, '')
const link = (path, op, token, { user = '', expires } = {}) => {
  const q = new URLSearchParams({ path, signature: sign(path, op, user, token, expires), ...(user && { username: user }), ...(expires && { signature_expiration: expires }) })
  return `/files?${q}`
}
assert.equal(sign('hello.txt', 'read', 'user', '0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0'), 'v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E')

const sandbox = await create()
const known = await call(`/sandboxes/${sandbox.sandboxId}/connect`, { timeout: 300 })
const token = known.envdAccessToken
assert.ok(token && sandbox.trafficAccessToken)

console.log('the access token')
const unauthorized = '401 unauthorized access, please provide a valid access token or method signing if supported'
assert.equal(await list(sandbox), unauthorized)
assert.equal(await list(sandbox, token.slice(1) + token[0]), unauthorized)
assert.equal(await list(sandbox, token.slice(0, -1)), unauthorized)
assert.match(await list(sandbox, token), /^200 /)
assert.equal(await said(envd(sandbox, '/envs')), unauthorized)
assert.equal((await envd(sandbox, '/health')).status, 204)
for (const path of ['/init', '/freeze', '/unfreeze', '/collapse', '/fsfreeze', '/fsthaw', '/upgrade', '//init', '/x/../init', '/%69nit']) {
  assert.equal((await envd(sandbox, path, { method: 'POST', body: '{}', headers: { 'X-Access-Token': token } })).status, 404, path)
}

console.log('signed links')
await sandbox.files.write('f', 'content')
await sandbox.files.write('/root/r', 'of root', { user: 'root' })
const url = await sandbox.downloadUrl('f')
assert.ok(!url.includes(sandbox.sandboxId), url)
const get = (u) => said(fetch(u))
assert.equal(await get(url), '200 content')
assert.equal(await get(await sandbox.downloadUrl('/root/r', { user: 'root' })), '200 of root')
assert.equal(await get(data + link('/root/r', 'read', token, { user: 'root' }).replace('root&', 'user&').replace('username=root', 'username=user')), '401 invalid signature')
const now = Math.floor(Date.now() / 1000)
assert.equal(await get(data + link('f', 'read', token, { expires: `${now + 60}` })), '200 content')
assert.equal(await get(data + link('f', 'read', token, { expires: `${now - 60}` })), '401 signature is already expired')
assert.equal(await get(data + link('f', 'read', token, { expires: `${now - 60}` }).replace(`${now - 60}`, `${now + 60}`)), '401 invalid signature')
assert.equal(await get(data + link('f', 'read', token, { expires: 'never' })), '401 signature is already expired')
assert.equal(await get(data + link('f', 'write', token)), '401 invalid signature')
assert.equal(await said(fetch(data + link('f', 'read', token), { method: 'POST', body: 'x', headers: { 'Content-Type': 'application/octet-stream' } })), '401 invalid signature')
assert.equal(await get(data + link('f', 'read', token.toUpperCase())), '401 invalid signature')
assert.equal(await get(`${data}/files?path=f&signature=v1_${'A'.repeat(43)}`), '401 invalid signature')
assert.equal(await get(`${data}/files?path=f&signature=x`), '401 invalid signature')
assert.equal(await said(envd(sandbox, '/files?path=f')), '401 missing signature query parameter')
assert.equal(await said(envd(sandbox, link('f', 'read', token), { headers: { 'X-Access-Token': 'wrong' } })), '401 access token present in header but does not match')
assert.equal(await said(envd(sandbox, '/files?path=f', { headers: { 'X-Access-Token': token } })), '200 content')
const upload = (u) => said(fetch(u, { method: 'POST', body: 'uploaded', headers: { 'Content-Type': 'application/octet-stream' } }))
assert.match(await upload(await sandbox.uploadUrl('up', { useSignatureExpiration: 60 })), /^200 /)
assert.equal(await sandbox.files.read('up'), 'uploaded')
const form = new FormData()
form.append('file', new Blob(['by name']), 'its/own/name')
assert.equal((await fetch(await sandbox.uploadUrl(), { method: 'POST', body: form })).status, 200)
assert.equal(await sandbox.files.read('its/own/name'), 'by name')

console.log('the traffic token')
await sandbox.commands.run('exec python3 -m http.server 8000', { background: true, timeoutMs: 0 })
await sandbox.commands.run('until curl -sf http://127.0.0.1:8000 >/dev/null; do sleep 0.02; done')
const traffic = async (s, t) => (await fetch(`${data}/f`, { headers: { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '8000', ...(t && { 'E2B-Traffic-Access-Token': t }) } })).status
assert.equal(await traffic(sandbox), 403)
assert.equal(await traffic(sandbox, token), 403)
assert.equal(await traffic(sandbox, sandbox.trafficAccessToken), 200)

console.log('copies have tokens of their own')
const snapshot = await sandbox.createSnapshot()
const copy = await create(snapshot.snapshotId)
const copyToken = (await call(`/sandboxes/${copy.sandboxId}/connect`, { timeout: 300 })).envdAccessToken
const clones = await call(`/sandboxes/${sandbox.sandboxId}/clone`, { count: 2 }).then((r) => r.sandboxes ?? r)
const tokens = [token, copyToken, ...clones.map((c) => c.envdAccessToken)]
assert.equal(new Set(tokens.filter(Boolean)).size, 4)
assert.equal(new Set([sandbox.trafficAccessToken, copy.trafficAccessToken, ...clones.map((c) => c.trafficAccessToken)].filter(Boolean)).size, 4)
const own = { sandboxId: copy.sandboxId }
const apart = async () => {
  for (const [i, s] of [sandbox, copy, ...clones.map((c) => ({ sandboxId: c.sandboxID }))].entries()) {
    for (const [j, t] of tokens.entries()) {
      assert.match(await list(s, t), i === j ? /^200 / : /^401 /, `the token of ${j} at ${i}`)
      assert.match(await said(envd(s, link('f', 'read', t))), i === j ? /^200 / : /^401 invalid signature/, `a link of ${j} at ${i}`)
    }
  }
}
await apart()
assert.equal(await traffic(copy, sandbox.trafficAccessToken), 403)
assert.equal(await traffic(copy, copy.trafficAccessToken), 200)
await copy.files.write('f', 'of the copy')
assert.deepEqual([await get(url), await get(await copy.downloadUrl('f'))], ['200 content', '200 of the copy'], 'a link without an id leads to its own')

console.log('a rollback changes no token, and brings none back')
await sandbox.files.write('f', 'changed since')
assert.equal(await get(url), '200 changed since')
await call(`/sandboxes/${sandbox.sandboxId}/rollback`, { snapshotID: snapshot.snapshotId })
await call(`/sandboxes/${copy.sandboxId}/rollback`, { snapshotID: snapshot.snapshotId }) // whose memory has the source's token
assert.equal(await get(url), '200 content')
assert.equal(await get(await copy.downloadUrl('f')), '200 content')
await apart()
assert.equal(await traffic(sandbox), 403)
assert.equal(await traffic(sandbox, sandbox.trafficAccessToken), 200)
assert.equal(await traffic(copy, sandbox.trafficAccessToken), 403)

console.log('nor does a pause')
await sandbox.pause()
assert.match(await get(url), /^50[23] /)
await sandbox.connect()
assert.equal(await get(url), '200 content')
await apart()

console.log('of what was killed nothing is left')
for (const id of [own.sandboxId, ...clones.map((c) => c.sandboxID), sandbox.sandboxId]) await Sandbox.kill(id)
assert.equal(await get(url), '401 invalid signature')
assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
