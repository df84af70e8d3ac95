import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A server that keeps its connections: each answer is the digest of what was sent, and says
 * which connection that was, the how manieth request on it, and of its client. The servers
 * of e2e/realworld/guest answer in the same way.
 */
public final class Server {
    static final Map<InetSocketAddress, Integer> connections = new ConcurrentHashMap<>(), requests = new ConcurrentHashMap<>();
    static final AtomicInteger accepted = new AtomicInteger();
    static final Map<String, Integer> clients = new ConcurrentHashMap<>();

    static int next(InetSocketAddress from) {
        connections.computeIfAbsent(from, a -> accepted.incrementAndGet());
        return requests.merge(from, 1, Integer::sum);
    }

    static void handle(HttpExchange e) throws IOException {
        try (e) {
            byte[] body = e.getRequestBody().readAllBytes();
            InetSocketAddress from = e.getRemoteAddress();
            int n = next(from), of = clients.merge(String.valueOf(e.getRequestHeaders().getFirst("X-Client")), 1, Integer::sum);
            e.getResponseHeaders().set("X-Seq", connections.get(from) + " " + n + " " + of);
            byte[] digest = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body)).getBytes(StandardCharsets.US_ASCII);
            e.sendResponseHeaders(200, digest.length);
            e.getResponseBody().write(digest);
        } catch (java.security.NoSuchAlgorithmException x) {
            throw new IOException(x);
        }
    }

    public static void main(String[] args) throws IOException {
        if (args.length != 1) {
            System.out.println("usage: Server PORT");
            return;
        }
        // Its connections are idle while an image lies on the disk.
        System.setProperty("sun.net.httpserver.idleInterval", "86400"); // seconds
        HttpServer server = HttpServer.create(new InetSocketAddress(Integer.parseInt(args[0])), 16);
        server.createContext("/", Server::handle);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }
}
