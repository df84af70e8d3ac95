"""Who gets in: access tokens, signed links without an id, traffic tokens; of copies, and
after a pause and a rollback."""

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request

from either import Sandbox, run

API, KEY, DATA = os.environ["E2B_API_URL"], os.environ["E2B_API_KEY"], os.environ["E2B_SANDBOX_URL"]


def ask(url, body=None, **headers):
    """Status and what is said: the message of an error, or the text."""
    headers = {k.replace("_", "-"): v for k, v in headers.items() if v is not None}
    request = urllib.request.Request(url, data=body, headers=headers, method="GET" if body is None else "POST")
    try:
        answer = urllib.request.urlopen(request)
    except urllib.error.HTTPError as e:
        answer = e
    text = answer.read().decode()
    return answer.status, json.loads(text)["message"] if answer.status >= 400 and text.startswith("{") else text


def call(path, **body):
    status, text = ask(API + path, json.dumps(body).encode(), X_API_Key=KEY, Content_Type="application/json")
    assert status < 300, (path, status, text)
    return json.loads(text)


def envd(id, path, body=None, **headers):
    return ask(DATA + path, body, E2b_Sandbox_Id=id, E2b_Sandbox_Port="49983", **headers)


def lists(id, token):
    return envd(id, "/process.Process/List", b"{}", Content_Type="application/json", X_Access_Token=token)


def traffic(id, token):
    return ask(f"{DATA}/f", E2b_Sandbox_Id=id, E2b_Sandbox_Port="8000", E2B_Traffic_Access_Token=token)[0]


async def create(template="base"):
    sandbox = await Sandbox.create(template, timeout=300, network={"allow_public_traffic": False})
    token = call(f"/sandboxes/{sandbox.sandbox_id}/connect", timeout=300)["envdAccessToken"]
    return sandbox, sandbox.sandbox_id, token


async def main():
    sandbox, id, token = await create()

    print("the access token")
    unauthorized = (401, "unauthorized access, please provide a valid access token or method signing if supported")
    assert lists(id, None) == unauthorized
    assert lists(id, token[1:] + token[0]) == unauthorized
    assert lists(id, token)[0] == 200
    assert envd(id, "/health")[0] == 204
    assert envd(id, "/init", b"{}", X_Access_Token=token)[0] == 404

    print("signed links")
    await sandbox.files.write("f", "content")
    await sandbox.files.write("/root/r", "of root", user="root")
    url = sandbox.download_url("f")
    assert id not in url
    assert ask(url) == (200, "content")
    assert ask(sandbox.download_url("/root/r", user="root")) == (200, "of root")
    assert ask(url, b"x", Content_Type="application/octet-stream") == (401, "invalid signature")
    assert ask(url.replace("path=f", "path=g")) == (401, "invalid signature")
    soon = sandbox.download_url("f", use_signature_expiration=1)
    assert ask(sandbox.download_url("f", use_signature_expiration=60)) == (200, "content")
    until = int(urllib.parse.parse_qs(urllib.parse.urlparse(soon).query)["signature_expiration"][0])
    while time.time() <= until + 1:
        await sandbox.is_running()
    assert ask(soon) == (401, "signature is already expired")
    assert ask(soon.replace(str(until), str(until + 99))) == (401, "invalid signature")
    assert ask(sandbox.upload_url("up", use_signature_expiration=60), b"up", Content_Type="application/octet-stream")[0] == 200
    assert await sandbox.files.read("up") == "up"

    print("the traffic token")
    await sandbox.commands.run("exec python3 -m http.server 8000", background=True, timeout=0)
    await sandbox.commands.run("until curl -sf http://127.0.0.1:8000 >/dev/null; do sleep 0.02; done")
    assert [traffic(id, t) for t in (None, token, sandbox.traffic_access_token)] == [403, 403, 200]

    print("copies have tokens of their own")
    snapshot = await sandbox.create_snapshot()
    copy, copy_id, copy_token = await create(snapshot.snapshot_id)
    assert token != copy_token and sandbox.traffic_access_token != copy.traffic_access_token

    def apart():
        assert [lists(i, t)[0] for i in (id, copy_id) for t in (token, copy_token)] == [200, 401, 401, 200]
        ours, theirs = sandbox.traffic_access_token, copy.traffic_access_token
        assert [traffic(i, t) for i in (id, copy_id) for t in (ours, theirs)] == [200, 403, 403, 200]

    apart()
    await copy.files.write("f", "of the copy")
    assert (ask(url), ask(copy.download_url("f"))) == ((200, "content"), (200, "of the copy"))

    print("a rollback changes no token, and brings none back")
    await sandbox.files.write("f", "changed since")
    call(f"/sandboxes/{id}/rollback", snapshotID=snapshot.snapshot_id)
    call(f"/sandboxes/{copy_id}/rollback", snapshotID=snapshot.snapshot_id)  # whose memory has the source's token
    assert (ask(url), ask(copy.download_url("f"))) == ((200, "content"), (200, "content"))
    apart()

    print("nor does a pause")
    await sandbox.pause()
    assert ask(url)[0] in (502, 503)
    await sandbox.connect()
    assert ask(url) == (200, "content")
    apart()

    print("of what was killed nothing is left")
    assert await copy.kill() is True
    assert await sandbox.kill() is True
    assert ask(url) == (401, "invalid signature")
    assert await Sandbox.delete_snapshot(snapshot.snapshot_id) is True


run(main)
