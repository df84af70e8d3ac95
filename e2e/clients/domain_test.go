package clients

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"cubesandbox/e2e/lab"
)

// TestClientsFindSandboxesByDomain: with E2B_DOMAIN instead of E2B_SANDBOX_URL the
// clients of E2B go to https://PORT-ID.DOMAIN, with HTTP/2 and the certificate of the
// server's own authority; without a node's address, CubeSandbox's goes to
// http://PORT-ID.DOMAIN. As anywhere, DNS has a wildcard for the domain.
func TestClientsFindSandboxesByDomain(t *testing.T) {
	prefix := resolving(t)
	js, py := environment(t, "E2B_SANDBOX_URL"), environment(t, "E2B_SANDBOX_URL")
	py["SSL_CERT_FILE"] = py["CUBE_CA_FILE"]
	domain := newestJS
	domain.folder = "domain"
	for what, c := range map[string]struct {
		language
		env      map[string]string
		programs []string
	}{
		"ports":       {domain, js, domain.programs(t)},
		"e2b":         {newestJS, js, []string{"first_day", "files", "killed_meanwhile", "memory"}},
		"e2b-2.39":    {olderJS, js, []string{"first_day", "files", "killed_meanwhile"}},
		"python":      {python, py, []string{"first_day", "files", "killed_meanwhile"}},
		"cubesandbox": {cubePy, environment(t, "CUBE_PROXY_NODE_IP", "CUBE_PROXY_PORT_HTTP"), []string{"first_day"}},
	} {
		if lab.Form() == "" && what != "ports" { // more of what the address does not change
			c.programs = c.programs[:1]
		}
		for _, name := range c.programs {
			t.Run(what+"/"+name, func(t *testing.T) { runProgram(t, c.language, name, c.env, prefix) })
		}
	}
}

// resolving returns what to put before a command so that, for it alone, every name in
// localhost is 127.0.0.1: a name server, and a mount namespace with the files that lead
// to it.
func resolving(t *testing.T) []string {
	t.Helper()
	pid := os.Getpid()
	addr := fmt.Sprintf("127.53.%d.%d", pid>>8&0xff, pid&0xff)
	conn, err := net.ListenPacket("udp4", addr+":53")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- answerNames(conn) }()
	t.Cleanup(func() {
		conn.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the name server: %v", err)
		}
	})
	dir := t.TempDir()
	for name, text := range map[string]string{"resolv.conf": "nameserver " + addr + "\n", "nsswitch.conf": "passwd: files\nhosts: files dns\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"/bin/sh", "-euc", `for f in resolv.conf nsswitch.conf; do mount --bind "$0/$f" "/etc/$f"; done; exec "$@"`, dir}
}

// answerNames answers every question for an address with 127.0.0.1, and every other
// with nothing, until the connection is closed.
func answerNames(conn net.PacketConn) error {
	buf := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		if answer := answerName(buf[:n]); answer != nil {
			if _, err := conn.WriteTo(answer, from); err != nil {
				return err
			}
		}
	}
}

// answerName makes the answer to one question, or nil if it is none.
func answerName(q []byte) []byte {
	const header = 12
	if len(q) < header || q[2]&0x80 != 0 || q[5] != 1 {
		return nil
	}
	end := header
	for end < len(q) && q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5 // the root, type and class
	if end > len(q) {
		return nil
	}
	a := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[header:end]...)
	if typ := q[end-3]; typ == 1 { // A
		a[7] = 1
		a = append(a, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
	}
	return a
}
