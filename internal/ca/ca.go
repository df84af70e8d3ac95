// Package ca is the certificate authority of an installation, for the TLS side of
// its data plane: made at the first start, on this machine only. Its key never
// leaves the state directory, and it can vouch for the sandbox domain, localhost and
// loopback addresses alone (name constraints, RFC 5280 4.2.1.10): whoever trusts it
// trusts it for nothing else.
package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"time"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 90 * 24 * time.Hour
	// renewBefore is how long before its end a leaf is not handed out any more.
	renewBefore = 24 * time.Hour
	// backdate is for clients whose clock is behind ours.
	backdate = time.Hour
	// mostLeaves bounds how many are kept.
	mostLeaves = 1000
)

// CA is an authority and the certificates that it has made.
type CA struct {
	path, host string
	cert       *x509.Certificate
	key        crypto.Signer
	leafKey    *ecdsa.PrivateKey // one for all leaves: they are one server's
	leaves     leaves
	now        func() time.Time
}

// Open opens the authority of a state directory, or makes it. host is the sandbox
// domain without a port.
func Open(stateDir, host string) (*CA, error) { return open(stateDir, host, time.Now) }

func open(stateDir, host string, now func() time.Time) (*CA, error) {
	dir := filepath.Join(stateDir, "ca")
	c := &CA{path: filepath.Join(dir, "ca.pem"), host: strings.ToLower(strings.TrimSuffix(host, ".")), now: now}
	err := c.load(filepath.Join(dir, "ca.key"))
	if errors.Is(err, fs.ErrNotExist) {
		err = c.make(dir)
	}
	if err == nil {
		c.leafKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	return c, nil
}

// Path is where its certificate is, for clients.
func (c *CA) Path() string { return c.path }

// TLSConfig is that of a server whose certificates this authority makes as they
// are asked for: clients on OpenSSL and Node refuse wildcards like *.localhost.
func (c *CA) TLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return c.leaf(h.ServerName) },
	}
}

func (c *CA) make(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t := c.template()
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return err
	}
	if c.cert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	c.key = key
	return store(dir, der, key)
}

func (c *CA) template() *x509.Certificate {
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Cube local CA", Organization: []string{"Cube"}},
		NotBefore: c.now().Add(-backdate), NotAfter: c.now().Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage:                    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{"localhost"},
		PermittedIPRanges: []*net.IPNet{
			{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
			{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
		},
	}
	if c.host != "localhost" && net.ParseIP(c.host) == nil {
		t.PermittedDNSDomains = append(t.PermittedDNSDomains, c.host)
	}
	return t
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return n
}
