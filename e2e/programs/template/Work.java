import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A JVM under work: threads that allocate and drop, so that the collector moves what they
 * hold, with maps of pieces that are compared byte by byte; and a loop that the compiler
 * makes machine code of, whose result is known otherwise too. The answers are those that
 * work.py describes.
 */
public final class Work {
    static final int PIECES = 200, LARGEST = 60_000; // of each heap worker; bytes
    static final int OFF_HEAP = 8 << 20; // bytes

    /** What a piece has to hold follows from these. */
    record Written(String mark, int piece, long round, int size) {
        long seed() {
            long h = 0xcbf29ce484222325L;
            for (int i = 0; i < mark.length(); i++) {
                h = (h ^ mark.charAt(i)) * 0x100000001b3L;
            }
            return h ^ piece * 0x9e3779b97f4a7c15L ^ round * 0xc2b2ae3d27d4eb4fL;
        }
    }

    static long mix(long z) {
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return z ^ (z >>> 31);
    }

    static byte[] make(Written w) {
        byte[] b = new byte[w.size];
        long x = w.seed(), z = 0;
        for (int i = 0; i < b.length; i++) {
            if (i % 8 == 0) {
                z = mix(x += 0x9e3779b97f4a7c15L);
            }
            b[i] = (byte) (z >>> (i % 8 * 8));
        }
        return b;
    }

    /** Goes round in a thread of its own. */
    abstract static class Worker extends Thread {
        final String name;
        final SplittableRandom random;
        final ReentrantLock lock = new ReentrantLock(true); // fair: who asks gets a turn
        long rounds; // under the lock, as all that is the worker's

        Worker(String name) {
            this.name = name;
            this.random = new SplittableRandom(name.hashCode());
            setDaemon(true);
        }

        abstract void once();

        abstract void check();

        @Override
        public void run() {
            try {
                while (true) {
                    lock.lock();
                    try {
                        once();
                        rounds++;
                    } finally {
                        lock.unlock();
                    }
                }
            } catch (Throwable t) {
                wrong(name + ": has ended: " + t);
            }
        }
    }

    static final List<String> broken = new ArrayList<>();
    static final List<String> marks = new ArrayList<>(); // as JSON
    static final List<Worker> workers = new ArrayList<>();
    static volatile String mark = "none";
    static final String identity = Long.toHexString(new SecureRandom().nextLong());

    static void wrong(String what) {
        synchronized (broken) {
            if (broken.size() < 20) {
                broken.add(what);
            }
        }
    }

    /** Maps of pieces, of which each round replaces some by new ones of other sizes. */
    static final class Heap extends Worker {
        final Map<Integer, byte[]> pieces = new HashMap<>();
        final Map<Integer, Written> written = new HashMap<>();
        List<String> dropped = new ArrayList<>();

        Heap(String name) {
            super(name);
            for (int i = 0; i < PIECES; i++) {
                renew(i);
            }
        }

        void renew(int i) {
            Written w = new Written(mark, i, rounds, 100 + random.nextInt(LARGEST));
            written.put(i, w);
            pieces.put(i, make(w));
        }

        void compare(int i) {
            byte[] got = pieces.get(i), want = make(written.get(i));
            int at = java.util.Arrays.mismatch(got, want);
            if (at >= 0) {
                wrong(name + ", piece " + written.get(i) + ": differs from byte " + at + " of " + got.length);
            }
        }

        @Override
        void once() {
            for (int k = 0; k < 4; k++) {
                int i = random.nextInt(PIECES);
                compare(i);
                renew(i);
            }
            // Short-lived and middle-aged objects, for the collector.
            dropped.add(name + rounds + mark);
            if (dropped.size() > 20_000) {
                for (int i = 1; i < dropped.size(); i++) {
                    if (!dropped.get(i).startsWith(name)) {
                        wrong(name + ": a text has become " + dropped.get(i));
                    }
                }
                dropped = new ArrayList<>();
            }
        }

        @Override
        void check() {
            for (int i = 0; i < PIECES; i++) {
                compare(i);
            }
        }
    }

    /** Memory outside of the heap, written in place, and the loop. */
    static final class OffHeap extends Worker {
        static final int SIZE = 20_480;
        final java.nio.ByteBuffer memory = java.nio.ByteBuffer.allocateDirect(OFF_HEAP / SIZE * SIZE);
        final Written[] written = new Written[OFF_HEAP / SIZE];

        OffHeap() {
            super("offheap");
            for (int i = 0; i < written.length; i++) {
                renew(i);
            }
        }

        void renew(int i) {
            written[i] = new Written(mark, i, rounds, SIZE);
            memory.put(i * SIZE, make(written[i]));
        }

        void compare(int i) {
            byte[] got = new byte[SIZE];
            memory.get(i * SIZE, got);
            int at = java.util.Arrays.mismatch(got, make(written[i]));
            if (at >= 0) {
                wrong("offheap, " + written[i] + ": differs from byte " + at);
            }
        }

        @Override
        void once() {
            int i = random.nextInt(written.length);
            compare(i);
            renew(i);
            Loop.compare(random.nextLong(), 50_000 + random.nextInt(1000));
        }

        @Override
        void check() {
            for (int i = 0; i < written.length; i++) {
                compare(i);
            }
        }
    }

    /** A generator, n steps on: one by one, and by doubling. */
    static final class Loop {
        static final long A = 6364136223846793005L, C = 1442695040888963407L;

        static long slowly(long x, int n) {
            for (int i = 0; i < n; i++) {
                x = x * A + C;
            }
            return x;
        }

        static long quickly(long x, int n) {
            for (long a = A, c = C; n > 0; n >>= 1, c = c * a + c, a *= a) {
                if ((n & 1) != 0) {
                    x = x * a + c;
                }
            }
            return x;
        }

        static void compare(long x, int n) {
            if (slowly(x, n) != quickly(x, n)) {
                wrong("loop: " + n + " steps from " + x + " have another result");
            }
        }
    }

    static String quoted(String s) {
        return '"' + s.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + '"';
    }

    static String rounds(boolean check) {
        List<String> out = new ArrayList<>();
        for (Worker w : workers) {
            w.lock.lock();
            try {
                if (check) {
                    w.check();
                }
                out.add(quoted(w.name) + ":" + w.rounds);
            } finally {
                w.lock.unlock();
            }
        }
        return "{" + String.join(",", out) + "}";
    }

    static void spoil(Heap h) {
        h.lock.lock();
        try {
            h.pieces.get(1)[2] ^= 1;
        } finally {
            h.lock.unlock();
        }
    }

    static synchronized String answer(String path, String query) {
        boolean set = path.endsWith("/mark");
        if (set) {
            mark = query.substring("name=".length());
        }
        if (path.endsWith("/spoil")) {
            spoil((Heap) workers.get(0));
        }
        String rounds = rounds(path.endsWith("/check"));
        if (set) {
            marks.add("{\"name\":" + quoted(mark) + ",\"rounds\":" + rounds + "}");
        }
        String wrong;
        synchronized (broken) {
            wrong = String.join(",", broken.stream().map(Work::quoted).toList());
        }
        return "{\"broken\":[" + wrong + "],\"identity\":" + quoted(identity) + ",\"pid\":" + ProcessHandle.current().pid()
            + ",\"bytes\":" + (2L * PIECES * LARGEST / 2 + OFF_HEAP) + ",\"rounds\":" + rounds + ",\"marks\":[" + String.join(",", marks) + "]}";
    }

    static void handle(HttpExchange e) throws IOException {
        byte[] body = answer(e.getRequestURI().getPath(), e.getRequestURI().getQuery()).getBytes(StandardCharsets.UTF_8);
        e.getResponseHeaders().set("Content-Type", "application/json");
        e.sendResponseHeaders(200, body.length);
        try (var out = e.getResponseBody()) {
            out.write(body);
        }
    }

    public static void main(String[] args) throws IOException {
        if (args.length != 1) {
            System.out.println("usage: Work PORT");
            return;
        }
        workers.addAll(List.of(new Heap("left"), new Heap("right"), new OffHeap()));
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), Integer.parseInt(args[0])), 16);
        server.createContext("/", Work::handle);
        server.setExecutor(Executors.newFixedThreadPool(2));
        workers.forEach(Thread::start);
        server.start();
    }
}
