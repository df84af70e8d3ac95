"""A server with clients that keep their connections.

kept.py DATA COMMAND... starts the server, which listens on port 8080, and sends it requests
over connections that are opened once. Each answer names the connection, the how manieth
request that was on it and of this client, and is the digest of what was sent: so that no
request is lost, done twice, or answered by what belongs to another. nginx, which counts no
clients, answers with files instead.
"""
import hashlib
import http.client
import os
import socket
import subprocess
import sys
import time

import work

PORT, FILES, PATIENCE = 8080, 20, 3000  # looks, 20 ms apart
CLIENTS = ("a", "b", "c")
NGINX = """
daemon off; worker_processes 2; error_log %(data)s/error.log; pid %(data)s/pid;
events {}
http {
  log_format seq "$connection $connection_requests $status"; access_log %(data)s/log/access.log seq;
  keepalive_timeout 1d; keepalive_requests 1000000000; sendfile on; client_body_temp_path %(data)s/body;
  server { listen 8080; root %(data)s/www; location / { add_header X-Seq "$connection $connection_requests"; } }
}
"""


class Kept(work.Work):
    def __init__(self, data, command):
        super().__init__(0)
        self.data = os.path.abspath(data)
        os.makedirs(f"{self.data}/www", exist_ok=True)
        os.makedirs(f"{self.data}/log", exist_ok=True)
        self.files = command[0] == "nginx"
        if self.files:
            self.make_files()
            command = ["/usr/sbin/nginx", "-c", f"{self.data}/nginx.conf"]
        self.server = subprocess.Popen(command, stdout=open(f"{self.data}/said", "wb"), stderr=subprocess.STDOUT)
        self.wait()
        for name in CLIENTS:
            client = Client(self, name)
            self.add(name, client.once, client.check)

    def make_files(self):
        with open(f"{self.data}/nginx.conf", "w") as f:
            f.write(NGINX % {"data": self.data})
        for n in range(FILES):
            with open(f"{self.data}/www/{n}", "wb") as f:
                f.write(self.file(n))

    def file(self, n):
        return work.content("file", n, 0, 1000 + n * 7919)

    def wait(self):
        for _ in range(PATIENCE):
            try:
                return socket.create_connection(("127.0.0.1", PORT)).close()
            except OSError:
                if self.server.poll() is not None:
                    raise RuntimeError(f"the server has ended: {self.server.returncode}")
                time.sleep(0.02)
        raise RuntimeError("the server does not answer")

    def check(self):
        if self.server.poll() is not None:
            self.wrong(f"the server has ended: {self.server.returncode}")
        return super().check()


class Client:
    """One connection. It is never opened again: a server that closes it has gone wrong."""

    def __init__(self, kept, name):
        self.kept, self.name, self.requests, self.id = kept, name, 0, None
        self.http = http.client.HTTPConnection("127.0.0.1", PORT)
        self.http.connect()
        self.http.auto_open = 0
        self.mine = self.http.sock.getsockname()

    def once(self, worker):
        if self.kept.files:
            n = worker.random.randrange(FILES)
            got, seq = self.request("GET", f"/{n}", None)
            self.kept.same(f"file {n}", got, self.kept.file(n))
        else:
            body = worker.random.randbytes(worker.random.randrange(30_000))
            got, seq = self.request("POST", "/", body)
            self.kept.same("the digest of a request", got, hashlib.sha256(body).hexdigest().encode())
        self.requests += 1
        self.id = self.id or seq[0]
        want = [self.id, self.requests] + ([] if self.kept.files else [self.requests])
        if seq != want:
            self.kept.wrong(f"client {self.name}: the answer is numbered {seq}, want {want}")

    def request(self, method, path, body):
        self.http.request(method, path, body, {"X-Client": self.name})
        answer = self.http.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{path}: status {answer.status}")
        return answer.read(), [int(n) for n in answer.getheader("X-Seq").split()]

    def check(self, _):
        if self.http.sock is None or self.http.sock.getsockname() != self.mine:
            self.kept.wrong(f"client {self.name}: its connection is another")
        if self.kept.files:
            self.logged()

    def logged(self):
        """nginx has written each request down once. It does so after it has answered."""
        for _ in range(PATIENCE):
            with open(f"{self.kept.data}/log/access.log") as f:
                mine = [line.split() for line in f if line.startswith(f"{self.id} ")]
            if len(mine) >= self.requests:
                break
            time.sleep(0.02)
        want = [[str(self.id), str(n + 1), "200"] for n in range(self.requests)]
        if mine != want:
            self.kept.wrong(f"client {self.name}: {len(mine)} requests are in the log, want {len(want)}; the last are {mine[-3:]}")


if __name__ == "__main__":
    Kept(sys.argv[1], sys.argv[2:]).serve()
