package ca

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	cube "cubesandbox"
)

// load reads both files; fs.ErrNotExist when an authority is to be made.
//
// The certificate is written first and the key last. So a certificate without a key is
// what a start that was cut short left, or is of no use any more: a new authority
// takes its place. A key without its certificate has been an authority that clients
// may trust, and they would trust another only when told: that is for a person to
// decide, as is everything else that does not fit.
func (c *CA) load(keyPath string) error {
	keyPEM, err := readPrivate(keyPath)
	if err != nil {
		return err
	}
	remedy := fmt.Sprintf("put %s back from a copy; or remove it and %s, and the next start makes a new authority, which clients must be told", c.path, keyPath)
	certPEM, err := os.ReadFile(c.path)
	if err != nil {
		return fmt.Errorf("%s is there, its certificate cannot be read (%v): %s: %w", keyPath, err, remedy, cube.ErrInvalid)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("%s and %s do not fit (%w): %s: %w", c.path, keyPath, err, remedy, cube.ErrInvalid)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return fmt.Errorf("%s is no authority: %s: %w", c.path, remedy, cube.ErrInvalid)
	}
	c.cert, c.key = pair.Leaf, signer
	now := c.now()
	switch {
	case now.Before(c.cert.NotBefore):
		return fmt.Errorf("%s is valid from %s on, and this machine's clock says %s: set the clock, or: %s: %w",
			c.path, stamp(c.cert.NotBefore), stamp(now), remedy, cube.ErrInvalid)
	case now.After(c.cert.NotAfter):
		return fmt.Errorf("%s has ended at %s: %s: %w", c.path, stamp(c.cert.NotAfter), remedy, cube.ErrInvalid)
	case !vouches(c.cert, c.host):
		return fmt.Errorf("%s is not for the domain %s: %s: %w", c.path, c.host, remedy, cube.ErrInvalid)
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// readPrivate reads a key that nobody else can read. An authority whose key is known
// to others vouches for them.
func readPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o, and others may have read it: remove it, and the next start makes a new authority, or: chmod 600 %s: %w",
			path, info.Mode().Perm(), path, cube.ErrInvalid)
	}
	return os.ReadFile(path)
}

func vouches(cert *x509.Certificate, name string) bool {
	for _, d := range cert.PermittedDNSDomains {
		if name == d || strings.HasSuffix(name, "."+d) {
			return true
		}
	}
	return net.ParseIP(name) != nil
}

// store writes an authority, the key last; see load.
func store(dir string, cert []byte, key crypto.Signer) error {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	// Whoever is to trust the authority must be able to read its certificate, whatever
	// the server's umask is.
	err = os.Mkdir(dir, 0o755)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := write(filepath.Join(dir, "ca.pem"), "CERTIFICATE", cert, 0o644); err != nil {
		return err
	}
	return write(filepath.Join(dir, "ca.key"), "PRIVATE KEY", pkcs8, 0o600)
}

// write makes a PEM file that is whole or not there, also after a power cut.
func write(path, kind string, der []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = pem.Encode(f, &pem.Block{Type: kind, Bytes: der})
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
