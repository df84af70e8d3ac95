"""A sandbox whose ports are private: CubeSandbox's client has the token, others do not."""

import os

import httpx
from cubesandbox import Sandbox

proxy = f"http://{os.environ['CUBE_PROXY_NODE_IP']}:{os.environ['CUBE_PROXY_PORT_HTTP']}"
sandbox = Sandbox.create(network={"allow_public_traffic": False})
assert sandbox.traffic_access_token
sandbox.files.write("/srv/index.html", "inside")
sandbox.commands.run("setsid nohup python3 -m http.server -d /srv -b 127.0.0.1 8080 >/dev/null 2>&1 </dev/null &")
sandbox.commands.run("until curl -sf http://127.0.0.1:8080 >/dev/null; do sleep 0.05; done", timeout=30)


def get(**headers):
    return httpx.get(proxy, headers={"Host": sandbox.get_host(8080), **{k.replace("_", "-"): v for k, v in headers.items()}})


token = sandbox.traffic_access_token
assert get().status_code == 403
assert get(e2b_traffic_access_token=token[::-1]).status_code == 403
assert get(e2b_traffic_access_token=token).text == "inside"
assert get(cube_traffic_access_token=token).text == "inside"
sandbox.kill()
assert get(cube_traffic_access_token=token).status_code == 410
