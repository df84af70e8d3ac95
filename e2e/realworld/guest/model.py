"""redis-server under load: clients send batches of commands of all kinds over TCP, and each
answer is what a model says; the server is forked for snapshots meanwhile."""
import sys

import keys  # of e2e/programs
import work

CLIENTS, BATCH, NAMES = ("left", "right", "third"), 40, 60
ADDRESS = ("127.0.0.1", 6379)


class Model:
    """What a client's part of the database is."""

    def __init__(self, held, name):
        self.held, self.name, self.redis = held, name, keys.Redis(ADDRESS)
        self.texts, self.counts, self.lists, self.fields, self.scores = {}, {}, {}, {}, {}

    def key(self, kind, n):
        return f"{self.name}:{kind}:{n}"

    def command(self, worker):
        """One that changes something, and what is answered to it."""
        n, kind = worker.random.randrange(NAMES), worker.random.choice(("text", "count", "list", "hash", "sorted"))
        key, body = self.key(kind, n), work.content(self.held.mark, n, worker.rounds, worker.random.randrange(1, 400))
        if kind == "text":
            if len(self.texts.get(n, b"")) > 4000:
                self.texts[n] = body
                return ("SET", key, body), b"OK"
            self.texts[n] = self.texts.get(n, b"") + body
            return ("APPEND", key, body), len(self.texts[n])
        if kind == "count":
            by = worker.random.randrange(-50, 50)
            self.counts[n] = self.counts.get(n, 0) + by
            return ("INCRBY", key, by), self.counts[n]
        if kind == "list":
            items = self.lists.setdefault(n, [])
            if len(items) > 20:
                return ("LPOP", key), items.pop(0)
            items.append(body)
            return ("RPUSH", key, body), len(items)
        field = worker.random.randrange(30)
        if kind == "hash":
            fields = self.fields.setdefault(n, {})
            new = field not in fields
            fields[field] = body
            return ("HSET", key, field, body), int(new)
        scores = self.scores.setdefault(n, {})
        new = field not in scores
        scores[field] = worker.random.randrange(1000)
        return ("ZADD", key, scores[field], field), int(new)

    def once(self, worker):
        batch = [self.command(worker) for _ in range(BATCH)]
        for (command, want), got in zip(batch, self.redis.all(*(c for c, _ in batch))):
            if got != want:
                self.held.wrong(f"{command[:2]} of round {worker.rounds} is answered {got!r}, want {want!r}")
        self.compare(worker.random.randrange(NAMES))

    def compare(self, n):
        got = self.redis.all(("GET", self.key("text", n)), ("GET", self.key("count", n)), ("LRANGE", self.key("list", n), 0, -1),
                             ("HGETALL", self.key("hash", n)), ("ZRANGE", self.key("sorted", n), 0, -1, "WITHSCORES"))
        text = lambda v: str(v).encode()
        pairs = sorted((score, text(field)) for field, score in self.scores.get(n, {}).items())
        want = [self.texts.get(n), text(self.counts[n]) if n in self.counts else None, self.lists.get(n, []),
                {text(f): v for f, v in self.fields.get(n, {}).items()}, [w for score, field in pairs for w in (field, text(score))]]
        got[3] = dict(zip(got[3][::2], got[3][1::2]))
        for kind, is_, should in zip(("text", "count", "list", "hash", "sorted"), got, want):
            if is_ != should:
                self.held.wrong(f"{self.key(kind, n)} is {str(is_)[:300]}, want {str(should)[:300]}")

    def check(self, _):
        for n in range(NAMES):
            self.compare(n)


def main():
    keys.start("--port", str(ADDRESS[1]))
    held = work.Work(0)
    for name in CLIENTS:
        model = Model(held, name)
        held.add(name, model.once, model.check)
    held.add("saver", keys.Saver(held).once)
    held.serve()


main()
