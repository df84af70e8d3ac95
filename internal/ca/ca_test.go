package ca

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const sandbox = "49983-0123456789abcdef0123456789abcdef.localhost"

func open(t *testing.T, dir, host string) *CA {
	t.Helper()
	c, err := Open(dir, host)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheAuthorityIsMadeOnceAndItsKeyIsTheOwners(t *testing.T) {
	dir := t.TempDir()
	first, err := os.ReadFile(open(t, dir, "localhost").Path())
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(open(t, dir, "localhost").Path())
	if err != nil || string(first) != string(second) {
		t.Errorf("another authority at the second start (%v)", err)
	}
	info, err := os.Stat(filepath.Join(dir, "ca", "ca.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key has mode %v (%v), want 0600", info.Mode(), err)
	}
}

func TestWhatAStartThatWasCutShortLeftIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, "localhost")
	if err := os.Remove(filepath.Join(dir, "ca", "ca.key")); err != nil {
		t.Fatal(err)
	}
	open(t, dir, "localhost")
	if err := os.Remove(filepath.Join(dir, "ca", "ca.pem")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "localhost"); err == nil || !strings.Contains(err.Error(), "remove") {
		t.Errorf("a key without a certificate: got %v", err)
	}
}

func TestItVouchesForItsOwnNamesOnly(t *testing.T) {
	c := open(t, t.TempDir(), "box.example")
	roots := x509.NewCertPool()
	roots.AddCert(c.cert)
	for name, want := range map[string]bool{
		"": true, "localhost": true, "127.0.0.1": true, "::1": true, "a.localhost": true, "49983-abc.box.example": true, "BOX.example": true,
		"a.b.box.example": false, "example": false, "bank.example": false, "10.0.0.1": false, "-box.example.org": false,
		"a_b.box.example": false, strings.Repeat("a", 64) + ".localhost": false,
	} {
		l, err := c.leaf(name)
		if (err == nil) != want {
			t.Errorf("%q: %v, want a certificate: %v", name, err, want)
		}
		if err != nil {
			continue
		}
		if name == "" {
			name = "127.0.0.1"
		}
		if _, err := l.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := Open(filepath.Dir(filepath.Dir(c.Path())), "other.example"); err == nil || !strings.Contains(err.Error(), "other.example") {
		t.Errorf("for another domain: %v", err)
	}
}

func TestTheNumberOfCertificatesIsBounded(t *testing.T) {
	c := open(t, t.TempDir(), "localhost")
	for i := range mostLeaves + 10 {
		if _, err := c.leaf(strings.Repeat("a", i%60+1) + string(rune('a'+i/60)) + ".localhost"); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.leaves) > mostLeaves {
		t.Errorf("%d are kept", len(c.leaves))
	}
}

// TestClientsOnGoAndOpenSSLAcceptIt: each resolves names its own way, so the address
// is given. What Node thinks is shown in e2e/clients.
func TestClientsOnGoAndOpenSSLAcceptIt(t *testing.T) {
	c := open(t, t.TempDir(), "localhost")
	ln, err := tls.Listen("tcp", "127.0.0.1:0", c.TLSConfig())
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("hello")) })}
	go srv.Serve(ln)
	defer srv.Close()
	addr := ln.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	roots := x509.NewCertPool()
	roots.AddCert(c.cert)
	conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, ServerName: sandbox})
	if err != nil {
		t.Errorf("Go: %v", err)
	} else {
		conn.Close()
	}
	for name, cmd := range map[string]*exec.Cmd{
		"curl (OpenSSL)": exec.Command("curl", "-sS", "--cacert", c.Path(), "--resolve", sandbox+":"+port+":127.0.0.1", "https://"+sandbox+":"+port+"/"),
		"python":         exec.Command("python3", "-c", python, port, sandbox, c.Path()),
	} {
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "hello" {
			t.Errorf("%s: %q (%v)", name, out, err)
		}
	}
}

const python = `
import socket, ssl, sys
s = ssl.create_default_context(cafile=sys.argv[3]).wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[1]))), server_hostname=sys.argv[2])
s.sendall(b"GET / HTTP/1.0\r\n\r\n")
data = b""
while part := s.recv(4096):
    data += part
print(data.decode().split("\r\n\r\n")[1])
`
