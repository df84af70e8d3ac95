// git inside, as the client offers it: a repository is made, cloned, changed, pushed
// and pulled, all within the sandbox.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 300_000 })
const { git, files } = sandbox

console.log('made')
await git.init('/home/user/origin.git', { bare: true, initialBranch: 'main' })
await git.init('/home/user/work', { initialBranch: 'main' })
await git.configureUser('A User', 'user@example.com')
assert.equal(await git.getConfig('user.name'), 'A User')
await git.setConfig('pull.rebase', 'false')
let status = await git.status('work')
assert.deepEqual([status.currentBranch, status.isClean], ['main', true])

console.log('changed')
await files.write('work/a.txt', 'one\n')
await files.write('work/dir/b.txt', 'two\n')
status = await git.status('work')
assert.deepEqual([status.isClean, status.hasUntracked, status.untrackedCount], [false, true, 2])
await git.add('work')
status = await git.status('work')
assert.deepEqual([status.hasStaged, status.stagedCount], [true, 2])
await git.commit('work', 'The first "words" & more')
assert.equal((await git.status('work')).isClean, true)

console.log('branches')
await git.createBranch('work', 'side')
await files.write('work/a.txt', 'one and a half\n')
await git.commit('work', 'On the side', { allowEmpty: true })
await git.restore('work', { paths: ['a.txt'] })
assert.equal(await files.read('work/a.txt'), 'one\n')
let branches = await git.branches('work')
assert.deepEqual([branches.branches.sort(), branches.currentBranch], [['main', 'side'], 'side'])
await git.checkoutBranch('work', 'main')
await git.deleteBranch('work', 'side', { force: true })
assert.deepEqual((await git.branches('work')).branches, ['main'])

console.log('pushed, cloned, pulled')
await git.remoteAdd('work', 'origin', '/home/user/origin.git')
assert.equal(await git.remoteGet('work', 'origin'), '/home/user/origin.git')
await git.push('work', { remote: 'origin', branch: 'main', setUpstream: true })
await git.clone('/home/user/origin.git', { path: '/home/user/copy' })
assert.equal(await files.read('copy/dir/b.txt'), 'two\n')
await files.write('copy/c.txt', 'three\n')
await git.add('copy', { files: ['c.txt'] })
await git.commit('copy', 'The second', { authorName: 'Another', authorEmail: 'another@example.com' })
status = await git.status('copy')
assert.deepEqual([status.ahead, status.behind], [1, 0])
await git.push('copy')
await git.pull('work')
assert.equal(await files.read('work/c.txt'), 'three\n')
const { stdout } = await sandbox.commands.run("git log --format='%an: %s'", { cwd: 'work' })
assert.equal(stdout, 'Another: The second\nA User: The first "words" & more\n')

console.log('taken back')
await git.reset('work', { mode: 'hard', target: 'HEAD~1' })
assert.equal(await files.exists('work/c.txt'), false)
await assert.rejects(git.clone('/home/user/no-such.git', { path: '/home/user/never' }))
await assert.rejects(git.checkoutBranch('work', 'no-such'))

console.log('200 files')
await sandbox.commands.run('for i in $(seq 200); do echo "$i" >n$i; done; git add . && git commit -qm many && git gc -q', { cwd: 'copy', timeoutMs: 120_000 })
await git.clone('file:///home/user/copy', { path: '/home/user/whole', depth: 1 })
assert.equal((await sandbox.commands.run('git fsck --no-progress 2>&1; ls | wc -l', { cwd: 'whole' })).stdout.trim().split('\n').at(-1), '203')

assert.equal(await sandbox.kill(), true)
