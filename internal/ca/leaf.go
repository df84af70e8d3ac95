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

// leaf returns a certificate for a name; "" stands for localhost.
func (c *CA) leaf(name string) (*tls.Certificate, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" {
		name = "localhost"
	}
	if !c.serves(name) {
		return nil, fmt.Errorf("no certificate for %.100q: want localhost, %s or one label before it: %w", name, c.host, cube.ErrInvalid)
	}
	now := c.now()
	if l, ok := c.leaves.get(name); ok && fresh(l, now) {
		return l, nil
	}
	// Two that ask at the same time both make one; either will do.
	l, err := c.sign(name, now)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", name, err)
	}
	c.leaves.put(name, l)
	return l, nil
}

// fresh reports whether a leaf can be handed out: not shortly before its end, nor when
// the clock has been set back to before it began.
func fresh(l *tls.Certificate, now time.Time) bool {
	return now.After(l.Leaf.NotBefore) && now.Before(l.Leaf.NotAfter.Add(-renewBefore))
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
		NotBefore: now.Add(-backdate), NotAfter: earlier(now.Add(leafLife), c.cert.NotAfter),
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

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
