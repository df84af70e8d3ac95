package ca

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// serve answers "hello" over TLS until the test ends, and returns the port.
func serve(t *testing.T, config *tls.Config) string {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello "+r.Proto) }),
		ErrorLog: log.New(io.Discard, "", 0), // handshakes that fail are meant to
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// client asks https://name:port/ at 127.0.0.1 and returns what is said. An empty name
// is none in the handshake, and the address is what the certificate must be for. Names
// are resolved by nobody: each client would do it its own way.
type client struct {
	does string
	ask  func(ctx context.Context, c *CA, name, port string) (string, error)
}

func clients() []client {
	run := func(ctx context.Context, stdin, program string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	return []client{
		{"Go", func(ctx context.Context, c *CA, name, port string) (string, error) {
			transport := &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: rootsOf(c), ServerName: name}, ForceAttemptHTTP2: true,
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+port)
				},
			}
			defer transport.CloseIdleConnections()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+orAddress(name)+":"+port+"/", nil)
			if err != nil {
				return "", err
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return string(b), err
		}},
		{"openssl s_client", func(ctx context.Context, c *CA, name, port string) (string, error) {
			names := []string{"-servername", name, "-verify_hostname", name}
			if name == "" {
				names = []string{"-noservername", "-verify_ip", "127.0.0.1"}
			}
			return run(ctx, "GET / HTTP/1.0\r\n\r\n", "openssl", append([]string{"s_client", "-connect", "127.0.0.1:" + port, "-CAfile", c.Path(),
				"-verify_return_error", "-x509_strict", "-quiet"}, names...)...)
		}},
		{"curl", func(ctx context.Context, c *CA, name, port string) (string, error) {
			return run(ctx, "", "curl", "-sS", "--cacert", c.Path(), "--resolve", orAddress(name)+":"+port+":127.0.0.1", "https://"+orAddress(name)+":"+port+"/")
		}},
		{"node", func(ctx context.Context, c *CA, name, port string) (string, error) {
			return run(ctx, "", "env", "NODE_EXTRA_CA_CERTS="+c.Path(), "node", "-e", node, port, name)
		}},
		{"python", func(ctx context.Context, c *CA, name, port string) (string, error) {
			return run(ctx, "", "python3", "-c", python, port, orAddress(name), c.Path())
		}},
	}
}

func orAddress(name string) string {
	if name == "" {
		return "127.0.0.1"
	}
	return name
}

const node = `
const [port, name] = process.argv.slice(1);
require("https").get({host: "127.0.0.1", port, servername: name}, res => {
	res.on("data", d => process.stdout.write(d));
}).on("error", err => { console.error(err); process.exit(1); });
`

const python = `
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[3])
context.verify_flags |= ssl.VERIFY_X509_STRICT
s = context.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[1]))), server_hostname=sys.argv[2])
s.sendall(b"GET / HTTP/1.0\r\n\r\n")
data = b""
while part := s.recv(4096):
    data += part
print(data.decode().split("\r\n\r\n")[1])
`

func TestClientsOnGoAndOpenSSLAcceptIt(t *testing.T) {
	for _, host := range []string{"localhost", "box.example"} {
		c := opened(t, t.TempDir(), host)
		port := serve(t, c.TLSConfig())
		for _, name := range []string{strings.TrimSuffix(sandbox, "localhost") + host, host, "localhost", ""} {
			for _, client := range clients() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				out, err := client.ask(ctx, c, name, port)
				cancel()
				if err != nil || !strings.Contains(out, "hello HTTP/") {
					t.Errorf("%s, %q: %q (%v)", client.does, name, out, err)
				}
				if h2 := client.does == "Go" || client.does == "curl"; h2 && !strings.Contains(out, "HTTP/2.0") {
					t.Errorf("%s, %q: %q, want HTTP/2", client.does, name, out)
				}
			}
		}
	}
}

// A stolen key of the authority is good for nothing else: whoever trusts it does not
// believe it about other names.
func TestClientsOnGoAndOpenSSLBelieveItNothingElse(t *testing.T) {
	c := opened(t, t.TempDir(), "localhost")
	for _, name := range []string{"bank.example", "localhost.example", "notlocalhost"} {
		forged, err := c.sign(name, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		port := serve(t, &tls.Config{Certificates: []tls.Certificate{*forged}})
		for _, client := range clients() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			out, err := client.ask(ctx, c, name, port)
			cancel()
			why := strings.ToLower(out)
			if err != nil {
				why += strings.ToLower(err.Error())
			}
			if err == nil || strings.Contains(out, "hello") || !strings.Contains(why, "permitted") {
				t.Errorf("%s, %q: %q (%v), want that it is not permitted", client.does, name, out, err)
			}
		}
	}
}

func TestOldTLSAndNamesOfOthersAreRefusedInTheHandshake(t *testing.T) {
	c := opened(t, t.TempDir(), "localhost")
	port := serve(t, c.TLSConfig())
	for what, config := range map[string]*tls.Config{
		"TLS 1.1":        {RootCAs: rootsOf(c), ServerName: sandbox, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
		"another's name": {InsecureSkipVerify: true, ServerName: "bank.example"},
	} {
		conn, err := tls.Dial("tcp", "127.0.0.1:"+port, config)
		if err == nil {
			conn.Close()
			t.Errorf("%s is served", what)
		}
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		conn, err := tls.Dial("tcp", "127.0.0.1:"+port, &tls.Config{RootCAs: rootsOf(c), ServerName: sandbox, MaxVersion: version})
		if err != nil {
			t.Errorf("%s: %v", tls.VersionName(version), err)
			continue
		}
		if got := conn.ConnectionState().Version; got != version {
			t.Errorf("got %s, want %s", tls.VersionName(got), tls.VersionName(version))
		}
		conn.Close()
	}
}
