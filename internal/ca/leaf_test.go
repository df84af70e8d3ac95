package ca

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func rootsOf(c *CA) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(c.cert)
	return roots
}

func TestItVouchesForItsOwnNamesOnly(t *testing.T) {
	c := opened(t, t.TempDir(), "box.example")
	for name, want := range map[string]bool{
		"": true, "localhost": true, "127.0.0.1": true, "127.8.8.8": true, "::1": true, "a.localhost": true, "49983-abc.box.example": true,
		"BOX.example": true, "a.box.example.": true,
		"a.b.box.example": false, "example": false, "bank.example": false, "10.0.0.1": false, "-box.example.org": false, "abox.example": false,
		"a_b.box.example": false, strings.Repeat("a", 64) + ".localhost": false, "*.localhost": false, ".localhost": false, "a..localhost": false,
		"0.0.0.0": false, "::": false, "::ffff:10.0.0.1": false, "a\x00.localhost": false, "ü.localhost": false,
	} {
		l, err := c.leaf(name)
		if (err == nil) != want {
			t.Errorf("%q: %v, want a certificate: %v", name, err, want)
		}
		if err != nil {
			continue
		}
		names := []string{name}
		if name == "" || name == "localhost" {
			names = []string{"localhost", "127.0.0.1", "::1"}
		}
		for _, n := range names {
			if _, err := l.Leaf.Verify(x509.VerifyOptions{Roots: rootsOf(c), DNSName: strings.TrimSuffix(n, ".")}); err != nil {
				t.Errorf("%q for %q: %v", name, n, err)
			}
		}
	}
}

func TestTheNumberOfCertificatesIsBoundedAndThoseThatAreUsedStay(t *testing.T) {
	c := opened(t, t.TempDir(), "localhost")
	used, err := c.leaf("used.localhost")
	if err != nil {
		t.Fatal(err)
	}
	for i := range mostLeaves + 100 {
		if _, err := c.leaf(fmt.Sprintf("a%d.localhost", i)); err != nil {
			t.Fatal(err)
		}
		if i%500 == 0 {
			c.leaf("used.localhost")
		}
	}
	if n := c.leaves.len(); n != mostLeaves {
		t.Errorf("%d are kept, want %d", n, mostLeaves)
	}
	if again, err := c.leaf("used.localhost"); err != nil || again != used {
		t.Errorf("one that is asked for again and again was not kept (%v)", err)
	}
	if _, kept := c.leaves.get("a0.localhost"); kept {
		t.Error("one that nobody asked for again was kept")
	}
}

func TestACertificateIsRenewedBeforeItsEndAndWhenTheClockIsSetBack(t *testing.T) {
	begin := time.Now().Truncate(time.Second)
	now := begin
	c, err := open(t.TempDir(), "localhost", func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	first := leafAt(t, c)
	if first.Leaf.NotBefore != begin.Add(-time.Hour).UTC() || first.Leaf.NotAfter != begin.Add(90*24*time.Hour).UTC() {
		t.Errorf("valid from %v to %v, want from an hour back for 90 days", first.Leaf.NotBefore, first.Leaf.NotAfter)
	}
	now = begin.Add(88 * 24 * time.Hour)
	if leafAt(t, c) != first {
		t.Error("another is made after 88 days")
	}
	now = begin.Add(89*24*time.Hour + time.Minute)
	second := leafAt(t, c)
	if second == first {
		t.Error("the same is handed out in the last day of its life")
	}
	now = begin
	if third := leafAt(t, c); third == second {
		t.Error("one of the future is handed out")
	}
	now = c.cert.NotAfter.Add(-time.Hour)
	if last := leafAt(t, c); !last.Leaf.NotAfter.Equal(c.cert.NotAfter) {
		t.Errorf("a leaf is valid to %v, its authority to %v", last.Leaf.NotAfter, c.cert.NotAfter)
	}
}

// leafAt returns the leaf of the sandbox, which must be valid now.
func leafAt(t *testing.T, c *CA) *tls.Certificate {
	t.Helper()
	l, err := c.leaf(sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Leaf.Verify(x509.VerifyOptions{Roots: rootsOf(c), DNSName: sandbox, CurrentTime: c.now()}); err != nil {
		t.Error(err)
	}
	return l
}

func TestManyAskForCertificatesAtTheSameTime(t *testing.T) {
	c := opened(t, t.TempDir(), "localhost")
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				name := fmt.Sprintf("a%d.localhost", (w+i)%20)
				if l, err := c.leaf(name); err != nil || l.Leaf.VerifyHostname(name) != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	if n := c.leaves.len(); n != 20 {
		t.Errorf("%d are kept, want 20", n)
	}
}

func BenchmarkNewLeaf(b *testing.B) {
	c, err := Open(b.TempDir(), "localhost")
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		if _, err := c.leaf(fmt.Sprintf("a%d.localhost", i)); err != nil {
			b.Fatal(err)
		}
	}
}
