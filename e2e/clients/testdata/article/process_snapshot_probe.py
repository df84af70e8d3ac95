"""The experiment of the article of 18 October 2026: a process that holds its progress in
memory only is killed, and comes back by a rollback; then its sandbox is deleted, and it
comes back in a new one made from the same snapshot. The steps and their order are the
article's; it has no source of its own to copy."""

import argparse
import hashlib
import json
import sys

from cubesandbox import Sandbox

# One thread counts; a server on the loopback address tells what is in memory. Nothing is
# read or written but the mark of the program's start.
PROGRAM = '''
import hashlib, http.server, json, os, secrets, threading, time
identity, counter, held, lock = secrets.token_hex(32), 0, False, threading.Lock()

def count():
    global counter
    while True:
        time.sleep(0.1)
        with lock:
            if not held:
                counter += 1

class Answer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass
    def do_GET(self):
        global held
        with lock:
            if self.path in ("/hold", "/run"):
                held = self.path == "/hold"
            digest = hashlib.sha256(f"{identity}:{counter}".encode()).hexdigest()
            state = {"counter": counter, "held": held, "identity": identity, "pid": os.getpid(), "digest": digest}
        body = json.dumps(state).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

threading.Thread(target=count, daemon=True).start()
http.server.ThreadingHTTPServer(("127.0.0.1", 18080), Answer).serve_forever()
'''

# Each question is a connection of its own.
ASK = "curl -sf --max-time 5 http://127.0.0.1:18080{}"


class Failed(Exception):
    pass


def check(checks, name, ok):
    checks[name] = bool(ok)
    if not ok:
        raise Failed(name)


def ask(sandbox, path="/"):
    """Returns what the program says, or None if it does not answer."""
    ran = sandbox.commands.run(ASK.format(path))
    return json.loads(ran.stdout) if ran.exit_code == 0 else None


def grown(sandbox, beyond):
    """Waits until the counter is larger."""
    ran = sandbox.commands.run(
        f"until {ASK.format('/')} | grep -qv '\"counter\": {beyond},'; do :; done", timeout=30
    )
    if ran.exit_code != 0:
        raise Failed("the counter does not grow")
    return ask(sandbox)


def public(state):
    """The record has a short hash of the identity, not the identity."""
    return {**state, "identity": hashlib.sha256(state["identity"].encode()).hexdigest()[:12]}


def one_round(number):
    record = {"round": number, "checks": {}, "states": {}}
    checks, states = record["checks"], record["states"]
    made, snapshot_id = [], None
    try:
        source = Sandbox.create(timeout=600, allow_internet_access=False)
        made.append(source)
        source.files.write("/root/program.py", PROGRAM)
        source.files.write("/root/marker", "before-snapshot")
        source.commands.run("setsid nohup python3 /root/program.py >/dev/null 2>&1 </dev/null &")
        source.commands.run(f"until {ASK.format('/')}; do sleep 0.05; done", timeout=60)
        grown(source, 0)

        before = ask(source, "/hold")
        check(checks, "the program holds", before["held"] and before["counter"] > 0)
        snapshot_id = source.create_snapshot().snapshot_id
        check(checks, "the source is as before the snapshot", ask(source) == before)
        states["snapshot"] = public(before)

        source.files.write("/root/marker", "after-snapshot")
        ask(source, "/run")
        more = grown(source, before["counter"])
        check(checks, "it counts on after the snapshot", more["counter"] > before["counter"])
        states["counted on"] = public(more)

        source.commands.run(f"kill -KILL {before['pid']}")
        check(checks, "the killed process does not answer", ask(source) is None)

        source.rollback(snapshot_id)
        back = ask(source)
        check(checks, "rollback brings the whole state back", back == before)
        check(checks, "rollback brings the files back", source.files.read("/root/marker") == "before-snapshot")
        states["rolled back"] = public(back)
        ask(source, "/run")
        check(checks, "it counts on after the rollback", grown(source, before["counter"])["identity"] == before["identity"])

        source.kill()
        check(checks, "the source is gone", all(s["sandboxID"] != source.sandbox_id for s in Sandbox.list_v2()))
        made.remove(source)

        restored = Sandbox.create(template=snapshot_id, timeout=600, allow_internet_access=False)
        made.append(restored)
        check(checks, "the new sandbox is another", restored.sandbox_id != source.sandbox_id)
        again = ask(restored)
        check(checks, "a new sandbox has the whole state", again == before)
        check(checks, "a new sandbox has the files", restored.files.read("/root/marker") == "before-snapshot")
        states["restored"] = public(again)
        ask(restored, "/run")
        last = grown(restored, before["counter"])
        check(checks, "it counts on in the new sandbox", last["identity"] == before["identity"])
        states["counted on in the new sandbox"] = public(last)
    finally:
        for sandbox in made:
            sandbox.kill()
        if snapshot_id is not None:
            Sandbox.delete_snapshot(snapshot_id)
    return record


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--environment", default="lab")
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    sandboxes = {s["sandboxID"] for s in Sandbox.list_v2()}
    snapshots = {s.snapshot_id for s in Sandbox.list_snapshots()[0]}
    result = {"environment": args.environment, "result": "PASS", "rounds": []}
    try:
        for number in range(1, args.rounds + 1):
            result["rounds"].append(one_round(number))
    except Failed as e:
        result["result"], result["failed"] = "FAIL", str(e)
    result["new_sandboxes_remaining"] = len({s["sandboxID"] for s in Sandbox.list_v2()} - sandboxes)
    result["new_snapshots_remaining"] = len({s.snapshot_id for s in Sandbox.list_snapshots()[0]} - snapshots)
    json.dump(result, sys.stdout, indent=1)
    passed = result["result"] == "PASS" and not result["new_sandboxes_remaining"] and not result["new_snapshots_remaining"]
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
