"""The experiment of the article, by the calls of its SDK, three rounds: a program holds
its progress in memory only; snapshot, go on, kill, roll back, go on; delete the source,
create another sandbox from the snapshot, go on. Nothing is left."""

import json

from cubesandbox import Sandbox, SandboxNotFoundError

PROGRAM = '''
import hashlib, http.server, json, os, secrets, threading, time
identity, counter, held, lock = secrets.token_hex(16), 0, False, threading.Lock()
def count():
    global counter
    while True:
        time.sleep(0.1)
        with lock:
            counter += not held
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global held
        with lock:
            held = {"/hold": True, "/run": False}.get(self.path, held)
            state = {"counter": counter, "held": held, "identity": identity, "pid": os.getpid(),
                     "digest": hashlib.sha256(f"{identity}:{counter}".encode()).hexdigest()}
        body = json.dumps(state).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
threading.Thread(target=count, daemon=True).start()
http.server.ThreadingHTTPServer(("127.0.0.1", 8765), H).serve_forever()
'''


def ask(sandbox, path):
    """Asks the program, over a connection of its own; None when nobody answers."""
    ran = sandbox.commands.run(f"curl -sf --max-time 5 http://127.0.0.1:8765/{path}")
    return json.loads(ran.stdout) if ran.exit_code == 0 else None


def grows(sandbox, held):
    """Lets the program go on; true when the same one counts from there."""
    ask(sandbox, "run")
    ran = sandbox.commands.run(
        f"until curl -sf http://127.0.0.1:8765/state | python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)[\"counter\"] <= {held['counter'] + 2})'; do :; done",
        timeout=60)
    now = ask(sandbox, "state")
    return ran.exit_code == 0 and now["identity"] == held["identity"] and now["pid"] == held["pid"] and now["counter"] > held["counter"]


for round in range(3):
    print("round", round + 1)
    source = Sandbox.create(timeout=600, allow_internet_access=False)
    source.files.write("/root/program.py", PROGRAM)
    source.files.write("/root/marker", "before-snapshot")
    source.commands.run("nohup setsid python3 /root/program.py >/dev/null 2>&1 & until curl -sf http://127.0.0.1:8765/state; do sleep 0.02; done", timeout=60)
    source.commands.run("until curl -sf http://127.0.0.1:8765/state | grep -q '\"counter\": [1-9]'; do sleep 0.02; done", timeout=60)
    ask(source, "hold")
    held = ask(source, "state")

    snapshot_id = source.create_snapshot().snapshot_id
    assert grows(source, held), "the source stood still after its snapshot"
    source.files.write("/root/marker", "after-snapshot")
    source.commands.run(f"kill -KILL {held['pid']}")
    assert ask(source, "state") is None, "the program answers after SIGKILL"

    source.rollback(snapshot_id)
    assert ask(source, "state") == held, "rollback brought another state back"
    assert source.files.read("/root/marker") == "before-snapshot"
    assert grows(source, held), "it stands still after the rollback"

    # The source can be deleted; the snapshot is retained independently.
    source.kill()
    try:
        source.get_info()
        raise AssertionError("the source is still there")
    except SandboxNotFoundError:
        pass
    restored = Sandbox.create(template=snapshot_id, timeout=600, allow_internet_access=False)
    assert restored.sandbox_id != source.sandbox_id
    assert ask(restored, "state") == held, "the new sandbox has another state"
    assert restored.files.read("/root/marker") == "before-snapshot"
    assert grows(restored, held), "it stands still in the new sandbox"
    restored.kill()
    Sandbox.delete_snapshot(snapshot_id)

assert Sandbox.list() == [] and Sandbox.list_snapshots() == ([], None)
