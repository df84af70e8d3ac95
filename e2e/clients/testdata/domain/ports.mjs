// A server inside, reached as a browser would: by the name that the client gives, over
// TLS: bodies both ways, events as they come, an upgrade, and the next life of the
// sandbox at the same name.
import assert from 'node:assert/strict'
import { connect } from 'node:tls'
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
await sandbox.files.write('server.py', `
import http.server, pathlib, time
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_GET(self):
        if self.headers.get("Upgrade") == "echo":
            self.send_response(101); self.send_header("Upgrade", "echo"); self.send_header("Connection", "Upgrade"); self.end_headers()
            self.wfile.write(self.rfile.readline()); self.wfile.flush(); self.close_connection = True
            return
        if self.path == "/events":
            self.send_response(200); self.send_header("Content-Type", "text/event-stream"); self.send_header("Connection", "close"); self.end_headers()
            self.wfile.write(b"data: first\\n\\n"); self.wfile.flush()
            while not pathlib.Path("seen").exists(): time.sleep(0.01)
            self.wfile.write(b"data: last\\n\\n"); self.close_connection = True
            return
        self.answer(f"{self.path} for {self.headers['Host']}".encode())
    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"]))[::-1])
    def answer(self, body):
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Answer).serve_forever()
`)
await sandbox.commands.run('exec python3 server.py', { background: true, timeoutMs: 0 })
await sandbox.commands.run('until curl -sf http://127.0.0.1:8000 >/dev/null; do sleep 0.02; done')
const host = sandbox.getHost(8000)
const url = `https://${host}`
assert.ok(host.startsWith(`8000-${sandbox.sandboxId}.localhost:`), host)

console.log('requests')
assert.equal(await (await fetch(`${url}/a?b=%20c`)).text(), `/a?b=%20c for ${host}`)
assert.equal(await (await fetch(url, { method: 'POST', body: 'abc'.repeat(100_000) })).text(), 'cba'.repeat(100_000))

console.log('events, as they come')
let events = ''
for await (const chunk of (await fetch(`${url}/events`)).body) {
  events += Buffer.from(chunk)
  if (events === 'data: first\n\n') await sandbox.files.write('seen', '')
}
assert.equal(events, 'data: first\n\ndata: last\n\n')

console.log('an upgrade')
const name = host.split(':')[0]
const socket = connect({ host: name, servername: name, port: Number(host.split(':')[1]) })
socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello\n`)
let said = ''
for await (const chunk of socket) said += chunk
assert.match(said, /^HTTP\/1.1 101 /)
assert.match(said, /hello\n$/)

console.log('a port on which nobody listens')
const closed = await fetch(`https://${sandbox.getHost(8001)}`)
assert.equal(closed.status, 502)
assert.equal((await closed.json()).port, 8001)

console.log('the same name leads to the next life')
await sandbox.pause()
assert.equal((await fetch(url)).ok, false)
await sandbox.connect()
assert.equal(await (await fetch(`${url}/again`)).text(), `/again for ${host}`)

console.log('and nowhere when it is over')
await sandbox.kill()
assert.equal((await fetch(url)).ok, false)
