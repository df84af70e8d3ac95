package ca

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	cube "cubesandbox"
)

const sandbox = "49983-0123456789abcdef0123456789abcdef.localhost"

func opened(t *testing.T, dir, host string) *CA {
	t.Helper()
	c, err := Open(dir, host)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func keyOf(c *CA) string { return filepath.Join(filepath.Dir(c.Path()), "ca.key") }

func TestTheAuthorityIsMadeOnceAndItsKeyIsTheOwners(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // as strict administrators have it
	dir := t.TempDir()
	c := opened(t, dir, "localhost")
	first, err := os.ReadFile(c.Path())
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(opened(t, dir, "localhost").Path())
	if err != nil || string(first) != string(second) {
		t.Errorf("another authority at the second start (%v)", err)
	}
	if other, err := os.ReadFile(opened(t, t.TempDir(), "localhost").Path()); err != nil || string(first) == string(other) {
		t.Errorf("another installation has the same authority (%v)", err)
	}
	for path, want := range map[string]os.FileMode{keyOf(c): 0o600, c.Path(): 0o644, filepath.Dir(c.Path()): 0o755} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v (%v), want %v", path, info.Mode(), err, want)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(c.Path()))
	if err != nil || len(entries) != 2 {
		t.Errorf("left: %v (%v)", entries, err)
	}
	if now := time.Now(); c.cert.NotBefore.After(now.Add(-59*time.Minute)) || c.cert.NotAfter.Before(now.Add(9*365*24*time.Hour)) {
		t.Errorf("valid from %v to %v, want an hour ago and ten years", c.cert.NotBefore, c.cert.NotAfter)
	}
}

func TestWhatAStartThatWasCutShortLeftIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	c := opened(t, dir, "localhost")
	if err := os.Remove(keyOf(c)); err != nil {
		t.Fatal(err)
	}
	second := opened(t, dir, "localhost")
	if second.cert.Equal(c.cert) {
		t.Error("a certificate without its key is still used")
	}
	if third := opened(t, dir, "localhost"); !third.cert.Equal(second.cert) {
		t.Error("what was made anew does not last")
	}
}

func TestAnAuthorityThatDoesNotFitIsRefusedAndLeftAlone(t *testing.T) {
	other := opened(t, t.TempDir(), "localhost")
	for name, c := range map[string]struct {
		host   string
		now    time.Time
		change func(c *CA) error
		want   string
	}{
		"a key without a certificate":    {change: func(c *CA) error { return os.Remove(c.Path()) }, want: "from a copy"},
		"a certificate of another":       {change: func(c *CA) error { return copyFile(other.Path(), c.Path()) }, want: "do not fit"},
		"a key of another":               {change: func(c *CA) error { return copyFile(keyOf(other), keyOf(c)) }, want: "do not fit"},
		"half a key":                     {change: func(c *CA) error { return os.Truncate(keyOf(c), 60) }, want: "do not fit"},
		"half a certificate":             {change: func(c *CA) error { return os.Truncate(c.Path(), 60) }, want: "do not fit"},
		"an empty key":                   {change: func(c *CA) error { return os.Truncate(keyOf(c), 0) }, want: "do not fit"},
		"a key that others may have":     {change: func(c *CA) error { return os.Chmod(keyOf(c), 0o640) }, want: "chmod 600"},
		"no authority":                   {change: noAuthority, want: "is no authority"},
		"another domain":                 {host: "box.example", want: "box.example"},
		"a domain that ends like it":     {host: "notlocalhost", want: "notlocalhost"},
		"one that has ended":             {now: time.Now().Add(caLife + time.Hour), want: "has ended"},
		"one that has not begun by then": {now: time.Now().Add(-48 * time.Hour), want: "set the clock"},
	} {
		dir := t.TempDir()
		ours := opened(t, dir, "localhost")
		if c.change != nil {
			if err := c.change(ours); err != nil {
				t.Fatal(err)
			}
		}
		host, now := "localhost", time.Now
		if c.host != "" {
			host = c.host
		}
		if !c.now.IsZero() {
			now = func() time.Time { return c.now }
		}
		before := contents(t, filepath.Dir(ours.Path()))
		if _, err := open(dir, host, now); !errors.Is(err, cube.ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "remove") {
			t.Errorf("%s: got %v, want %q and what to remove", name, err, c.want)
		}
		if after := contents(t, filepath.Dir(ours.Path())); after != before {
			t.Errorf("%s: files were changed", name)
		}
	}
}

// noAuthority puts a leaf in the authority's place.
func noAuthority(c *CA) error {
	l, err := c.leaf("localhost")
	if err != nil {
		return err
	}
	return store(filepath.Dir(c.Path()), l.Certificate[0], c.leafKey)
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

func contents(t *testing.T, dir string) (all string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all += e.Name() + ":" + string(b)
	}
	return all
}
