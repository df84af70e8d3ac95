// Says what its generators draw next. Argument: port.
const crypto = require('crypto'), fs = require('fs'), http = require('http');
const urandom = fs.openSync('/dev/urandom');
let signals = 0, changes = 0;
Math.random(), crypto.randomBytes(8), crypto.randomUUID(); // each has a state now
process.on('SIGUSR2', () => signals++);
fs.writeFileSync(`/run/cube/subscribers/${process.pid}`, 'USR2');
fs.watch('/run/cube/generation', () => changes++);
function read() {
  const b = Buffer.alloc(16);
  fs.readSync(urandom, b);
  return b.toString('hex');
}
http.createServer((_, res) => {
  res.end(JSON.stringify({
    'Math.random': String(Math.random()), 'crypto.randomBytes': crypto.randomBytes(16).toString('hex'),
    'crypto.randomUUID': crypto.randomUUID(), 'crypto.randomInt': String(crypto.randomInt(2 ** 40)),
    'getRandomValues': Buffer.from(crypto.webcrypto.getRandomValues(new Uint8Array(16))).toString('hex'),
    'pid': String(process.pid), '/dev/urandom': read(), 'heard': String(signals), 'seen': String(Math.min(changes, 1)),
  }));
}).listen(Number(process.argv[2]), '127.0.0.1');
