"""What runs goes on: through a pause, and in what is made from a snapshot."""

from e2b import CommandExitException, Sandbox

COUNTER = """
import http.server, os, secrets, threading, time
identity, n = secrets.token_hex(16), 0
def count():
    global n
    while True:
        n += 1
        time.sleep(0.01)
threading.Thread(target=count, daemon=True).start()
class Answer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(f"{identity} {os.getpid()} {n}".encode())
http.server.HTTPServer(("127.0.0.1", 8000), Answer).serve_forever()
"""


def ask(sandbox):
    out = sandbox.commands.run("until curl -sf http://127.0.0.1:8000; do sleep 0.02; done").stdout
    identity, pid, n = out.split()
    return identity, int(pid), int(n)


sandbox = Sandbox.create("base", timeout=120)
sandbox.files.write("counter.py", COUNTER)
started = sandbox.commands.run("exec python3 counter.py", background=True, timeout=0)
identity, pid, n = ask(sandbox)
assert pid == started.pid

print("through many pauses")
for i in range(3):
    sandbox.files.write(f"round-{i}", "x" * 100_000 * (i + 1))
    assert sandbox.pause() is True
    sandbox = Sandbox.connect(sandbox.sandbox_id)
    now = ask(sandbox)
    assert now[:2] == (identity, pid) and now[2] > n, (now, identity, pid, n)
    n = now[2]
    assert any(p.pid == pid for p in sandbox.commands.list())
assert [e.size for e in sandbox.files.list(".") if e.name.startswith("round-")] == [100_000, 200_000, 300_000]

print("in what is made from a snapshot, which outlives its source")
snapshot = sandbox.create_snapshot()
assert ask(sandbox)[0] == identity, "the source goes on"
assert sandbox.kill() is True
copies = [Sandbox.create(snapshot.snapshot_id, timeout=120) for _ in range(2)]
for copy in copies:
    its = ask(copy)
    assert its[:2] == (identity, pid) and its[2] >= n, its

print("a process of a copy can be followed and ended")
handle = copies[0].commands.connect(pid)
assert handle.kill() is True
try:
    handle.wait()
    raise AssertionError("a process that was killed has ended well")
except CommandExitException:
    pass
assert ask(copies[1])[0] == identity, "the other one has its own"

for copy in copies:
    assert copy.kill() is True
assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
