"""Says what its generators draw next. Arguments: port, and "told" for one that draws anew after a restore."""
import http.server, json, os, random, secrets, signal, ssl, sys, tempfile, uuid
import numpy

port, told = int(sys.argv[1]), sys.argv[2:] == ['told']
generator = numpy.random.default_rng()
own = random.Random()
urandom = os.open('/dev/urandom', os.O_RDONLY)
heard = 0
for draw in (random.random, numpy.random.rand, generator.random, own.random, lambda: ssl.RAND_bytes(8), tempfile.mktemp):
    draw()  # each has a state now


def reseed(*_):
    global generator, own, heard
    random.seed()
    numpy.random.seed()
    ssl.RAND_add(os.urandom(32), 32.0)
    generator, own = numpy.random.default_rng(), random.Random()
    heard += 1


if told:
    signal.signal(signal.SIGUSR1, reseed)
    with open('/run/cube/subscribers/%d' % os.getpid(), 'w') as f:
        f.write('USR1')


class Draws(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        out = {
            'random': random.random(), 'numpy.random': numpy.random.rand(), 'a numpy Generator': generator.random(),
            'a random.Random': own.random(), 'ssl.RAND_bytes': ssl.RAND_bytes(16).hex(), 'tempfile': tempfile.mktemp(),
            'hash': hash('x'), 'pid': os.getpid(),
            'os.urandom': os.urandom(16).hex(), 'getrandom': os.getrandom(16).hex(), 'an open /dev/urandom': os.read(urandom, 16).hex(),
            'secrets': secrets.token_hex(16), 'uuid4': str(uuid.uuid4()), 'SystemRandom': random.SystemRandom().random(),
            'a new Generator': numpy.random.default_rng().random(), 'a new Random': random.Random().random(),
            'heard': heard,
        }
        body = json.dumps({k: str(v) for k, v in out.items()}).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)


http.server.HTTPServer(('127.0.0.1', port), Draws).serve_forever()
