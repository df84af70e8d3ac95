// Package ca is the certificate authority of an installation, for the TLS side of
// its data plane: made at the first start, on this machine only. Its key never
// leaves the state directory, and it can vouch for the sandbox domain, localhost and
// loopback addresses alone (name constraints, RFC 5280 4.2.1.10).
package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	cube "cubesandbox"
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

	mu     sync.Mutex // guards leaves
	leaves map[string]*tls.Certificate
}

// Open opens the authority of a state directory, or makes it. host is the sandbox
// domain without a port.
func Open(stateDir, host string) (*CA, error) {
	dir := filepath.Join(stateDir, "ca")
	c := &CA{path: filepath.Join(dir, "ca.pem"), host: strings.ToLower(host), leaves: map[string]*tls.Certificate{}}
	err := c.load(filepath.Join(dir, "ca.key"))
	if errors.Is(err, fs.ErrNotExist) {
		err = c.make(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	c.leafKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return c, err
}

// load reads both files. The key is written last: a certificate without one is
// what a start that was cut short left, and fs.ErrNotExist.
func (c *CA) load(keyPath string) error {
	keyPEM, err := os.ReadFile(keyPath)
	if err != nil {
		return err
	}
	certPEM, err := os.ReadFile(c.path)
	if err != nil {
		return fmt.Errorf("%w; remove %s too, and a new authority is made", hide(err), keyPath)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("%s and %s do not fit: %w; remove both, and a new authority is made", c.path, keyPath, err)
	}
	c.cert, c.key = pair.Leaf, pair.PrivateKey.(crypto.Signer)
	for _, name := range []string{c.host} {
		if !vouches(c.cert, name) {
			return fmt.Errorf("%s is not for the domain %s: remove it and %s, and a new authority is made: %w", c.path, c.host, keyPath, cube.ErrInvalid)
		}
	}
	return nil
}

// hide makes an error no fs.ErrNotExist.
func hide(err error) error { return fmt.Errorf("%v", err) }

func vouches(cert *x509.Certificate, name string) bool {
	for _, d := range cert.PermittedDNSDomains {
		if name == d || strings.HasSuffix(name, "."+d) {
			return true
		}
	}
	return net.ParseIP(name) != nil
}

func (c *CA) make(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Cube local CA", Organization: []string{"Cube"}},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(caLife),
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
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if c.cert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	c.key = key
	if err := write(c.path, "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return write(filepath.Join(dir, "ca.key"), "PRIVATE KEY", pkcs8, 0o600)
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return n
}

// write makes a PEM file that is whole or not there.
func write(path, kind string, der []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = pem.Encode(f, &pem.Block{Type: kind, Bytes: der})
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Path is where its certificate is, for clients.
func (c *CA) Path() string { return c.path }
