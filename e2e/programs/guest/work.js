// node under work: two worker threads that write memory which they share, buffers outside
// of the heap, and objects on it; and a loop that the compiler makes machine code of, whose
// result is known otherwise too. The answers are those that work.py describes.
'use strict'
const crypto = require('crypto')
const http = require('http')
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads')

const PORT = 8000
const PIECES = 1024 // shared ones
const WORDS = 5 * 1024 // of each, 32 bits each: not a power of two, so that pieces straddle
const OWN = 400 // buffers of each thread
const NAMES = ['left', 'right']

// A mark goes into memory that is shared as a number.
function markNumber (mark) {
  let h = 0x811c9dc5
  for (let i = 0; i < mark.length; i++) h = Math.imul(h ^ mark.charCodeAt(i), 0x01000193)
  return h >>> 0
}

function seed (mark, piece, round) {
  let h = mark ^ Math.imul(piece + 1, 0x9e3779b1) ^ Math.imul(round + 1, 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 16), 0x7feb352d)
  h = Math.imul(h ^ (h >>> 15), 0x846ca68b)
  return (h ^ (h >>> 16)) | 1
}

// fill writes what belongs to a seed; differs returns where something else is, or -1.
function fill (words, from, to, x) {
  for (let i = from; i < to; i++) {
    x ^= x << 13; x ^= x >>> 17; x ^= x << 5
    words[i] = x
  }
}

function differs (words, from, to, x) {
  for (let i = from; i < to; i++) {
    x ^= x << 13; x ^= x >>> 17; x ^= x << 5
    if (words[i] !== x) return i - from
  }
  return -1
}

// A linear congruential generator, n steps on: one by one, and by doubling.
const A = 1664525; const C = 1013904223
function slowly (x, n) {
  for (let i = 0; i < n; i++) x = (Math.imul(x, A) + C) | 0
  return x
}
function quickly (x, n) {
  let a = A; let c = C
  for (; n > 0; n = Math.floor(n / 2)) {
    if (n % 2) x = (Math.imul(x, a) + c) | 0
    c = (Math.imul(c, a) + c) | 0
    a = Math.imul(a, a)
  }
  return x
}

// shared is memory of all threads: of each piece a lock, a round, the mark's number, its words.
function shared (memory) {
  const n = PIECES
  return { lock: new Int32Array(memory, 0, n), round: new Int32Array(memory, 4 * n, n), mark: new Uint32Array(memory, 8 * n, n), words: new Int32Array(memory, 12 * n, n * WORDS) }
}

function locked (s, i, f) {
  while (Atomics.compareExchange(s.lock, i, 0, 1) !== 0) Atomics.wait(s.lock, i, 1, 10)
  try { f() } finally {
    Atomics.store(s.lock, i, 0)
    Atomics.notify(s.lock, i)
  }
}

class Thread {
  constructor ({ name, memory }) {
    this.s = shared(memory)
    this.state = { name, rounds: 0, broken: [] }
    this.mark = markNumber('none')
    this.own = new Map() // number → { buffer, mark, round, text }
    for (let i = 0; i < OWN; i++) this.renew(i)
  }

  wrong (what) { if (this.state.broken.length < 20) this.state.broken.push(`${this.state.name}: ${what}`) }

  comparePiece (i) {
    const at = differs(this.s.words, i * WORDS, (i + 1) * WORDS, seed(this.s.mark[i], i, this.s.round[i]))
    if (at >= 0) this.wrong(`shared piece ${i} of round ${this.s.round[i]}: word ${at} of ${WORDS} is ${this.s.words[i * WORDS + at]}`)
  }

  rewritePiece (i) {
    this.s.mark[i] = this.mark
    this.s.round[i] = this.state.rounds
    fill(this.s.words, i * WORDS, (i + 1) * WORDS, seed(this.mark, i, this.state.rounds))
  }

  // A buffer of its own is another one each time, so that memory is given back and taken.
  renew (i) {
    const words = 2000 + Math.floor(Math.random() * 8000)
    const o = { mark: this.mark, round: this.state.rounds, words: new Int32Array(words), text: `${i}/${this.mark}/${this.state.rounds}` }
    fill(o.words, 0, words, seed(o.mark, PIECES + i, o.round))
    o.sum = crypto.createHash('sha256').update(o.text).digest('hex')
    this.own.set(i, o)
  }

  compareOwn (i) {
    const o = this.own.get(i)
    const at = differs(o.words, 0, o.words.length, seed(o.mark, PIECES + i, o.round))
    if (at >= 0) this.wrong(`buffer ${i} of round ${o.round}: word ${at} of ${o.words.length} is ${o.words[at]}`)
    if (crypto.createHash('sha256').update(`${i}/${o.mark}/${o.round}`).digest('hex') !== o.sum) this.wrong(`object ${i} has another text`)
  }

  once () {
    for (let k = 0; k < 4; k++) {
      const i = Math.floor(Math.random() * PIECES)
      locked(this.s, i, () => { this.comparePiece(i); this.rewritePiece(i) })
      const j = Math.floor(Math.random() * OWN)
      this.compareOwn(j)
      this.renew(j)
    }
    const n = 50000 + this.state.rounds % 1000
    if (slowly(this.mark, n) !== quickly(this.mark, n)) this.wrong(`${n} steps from ${this.mark} have another result`)
    this.state.rounds++
  }

  check () {
    for (let i = 0; i < PIECES; i++) locked(this.s, i, () => this.comparePiece(i))
    for (let i = 0; i < OWN; i++) this.compareOwn(i)
  }

  told (message) {
    if (message.mark) this.mark = markNumber(message.mark)
    else if (message.check) this.check()
    parentPort.postMessage(this.state)
  }

  go () {
    this.once()
    setImmediate(() => this.go())
  }
}

// serve is the main thread: it asks the others and answers.
function serve () {
  const memory = new SharedArrayBuffer(4 * PIECES * (3 + WORDS))
  const s = shared(memory)
  for (let i = 0; i < PIECES; i++) {
    s.mark[i] = markNumber('none')
    fill(s.words, i * WORDS, (i + 1) * WORDS, seed(s.mark[i], i, 0))
  }
  const threads = NAMES.map(name => new Worker(__filename, { workerData: { name, memory } }))
  const broken = []
  for (const t of threads) t.on('error', e => broken.push(`a thread has ended: ${e.stack}`))
  const identity = crypto.randomBytes(8).toString('hex')
  const marks = []
  let turn = Promise.resolve() // one question after the other

  async function ask (message) {
    const states = await Promise.all(threads.map(t => new Promise((resolve, reject) => {
      t.once('message', resolve)
      t.once('error', reject)
      t.postMessage(message)
    })))
    const rounds = Object.fromEntries(states.map(x => [x.name, x.rounds]))
    if (message.mark) marks.push({ name: message.mark, rounds })
    return { broken: broken.concat(...states.map(x => x.broken)), identity, pid: process.pid, bytes: 4 * PIECES * WORDS, rounds, marks }
  }

  http.createServer((request, response) => {
    const url = new URL(request.url, 'http://localhost')
    if (url.pathname.endsWith('/spoil')) locked(s, 1, () => { s.words[WORDS + 2] ^= 1 })
    const message = url.pathname.endsWith('/mark') ? { mark: url.searchParams.get('name') } : { check: url.pathname.endsWith('/check') }
    turn = turn.then(() => ask(message)).catch(e => ({ broken: broken.concat(String(e.stack)), identity, pid: process.pid, rounds: {}, marks }))
    turn.then(answer => response.end(JSON.stringify(answer)))
  }).listen(PORT, '127.0.0.1')
}

if (isMainThread) serve()
else {
  const thread = new Thread(workerData)
  parentPort.on('message', m => thread.told(m))
  thread.go()
}
