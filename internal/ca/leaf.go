package ca

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"strings"
	"time"

	cube "cubesandbox"
)

// TLSConfig is that of a server whose certificates this authority makes as they
// are asked for: clients on OpenSSL and Node refuse wildcards like *.localhost.
func (c *CA) TLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return c.leaf(h.ServerName) },
	}
}

// leaf returns a certificate for a name; "" stands for localhost.
func (c *CA) leaf(name string) (*tls.Certificate, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" {
		name = "localhost"
	}
	if !c.serves(name) {
		return nil, fmt.Errorf("no certificate for %.100q: want localhost, %s or one label before it: %w", name, c.host, cube.ErrInvalid)
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.leaves[name]; ok && now.Before(l.Leaf.NotAfter.Add(-renewBefore)) {
		return l, nil
	}
	if len(c.leaves) >= mostLeaves {
		clear(c.leaves) // cheaper than to keep order: making one takes 50 µs
	}
	l, err := c.sign(name, now)
	if err != nil {
		return nil, err
	}
	c.leaves[name] = l
	return l, nil
}

// serves reports whether name is ours: strangers choose it.
func (c *CA) serves(name string) bool {
	if ip := net.ParseIP(name); ip != nil {
		return ip.IsLoopback()
	}
	for _, domain := range []string{"localhost", c.host} {
		if name == domain {
			return true
		}
		if label, ok := strings.CutSuffix(name, "."+domain); ok && isLabel(label) {
			return true
		}
	}
	return false
}

// isLabel checks one label of a host name (RFC 1123 2.1).
func isLabel(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return false
		}
	}
	return true
}

func (c *CA) sign(name string, now time.Time) (*tls.Certificate, error) {
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{Organization: []string{"Cube"}},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		t.IPAddresses = []net.IP{ip}
	} else {
		t.DNSNames = []string{name}
	}
	if name == "localhost" {
		t.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, c.cert, c.leafKey.Public(), c.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: c.leafKey, Leaf: leaf}, nil
}
