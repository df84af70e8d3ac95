package template

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"
)

// source is one place that apt takes packages from, whatever form it was
// written in.
type source struct {
	uris, suites, components []string
	architectures            []string // empty: that of the machine
	// signedBy is a path to a keyring, or an inline key in deb822 form (lines
	// that each begin with a space). Empty: apt's own trusted keys.
	signedBy string
	where    string // file and line, for messages
}

// hasSuite reports whether the source is the Debian archive of a release, or its
// updates. "main" tells it from others that use the release's name.
func (s source) hasSuite(suite string) bool {
	if !slices.Contains(s.components, "main") || !s.debianKeyed() {
		return false
	}
	return slices.ContainsFunc(s.suites, func(have string) bool { return partOf(have, suite) })
}

// debianKeyed reports whether the source may be Debian's: it uses apt's own keys,
// an inline key, or a keyring whose name says so.
func (s source) debianKeyed() bool {
	return s.signedBy == "" || s.inlineKey() || slices.ContainsFunc(s.keyrings(), func(file string) bool {
		return strings.Contains(path.Base(file), "debian")
	})
}

func (s source) inlineKey() bool { return strings.Contains(s.signedBy, "-----BEGIN") }

// keyrings are the files that signedBy names.
func (s source) keyrings() []string {
	if s.inlineKey() {
		return nil
	}
	words := strings.FieldsFunc(s.signedBy, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	return slices.DeleteFunc(words, func(word string) bool { return !path.IsAbs(word) }) // fingerprints
}

func partOf(have, suite string) bool {
	return have == suite || have == suite+"-updates" || have == suite+"-security" || have == suite+"/updates"
}

// of returns the source cut down to one release.
func (s source) of(suite string) source {
	s.suites = slices.DeleteFunc(slices.Clone(s.suites), func(have string) bool { return !partOf(have, suite) })
	return s
}

// public returns the source without addresses that only this machine can use or
// that carry a password; ok is false when none is left.
func (s source) public() (source, bool) {
	s.uris = slices.DeleteFunc(slices.Clone(s.uris), func(raw string) bool {
		u, err := url.Parse(raw)
		if err != nil || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
			return true
		}
		host := u.Hostname()
		return host == "localhost" || strings.HasPrefix(host, "127.") || host == "::1"
	})
	return s, len(s.uris) > 0
}

// String gives the source in deb822 form.
func (s source) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Types: deb\nURIs: %s\nSuites: %s\n", strings.Join(s.uris, " "), strings.Join(s.suites, " "))
	if len(s.components) > 0 {
		fmt.Fprintf(&b, "Components: %s\n", strings.Join(s.components, " "))
	}
	switch {
	case s.inlineKey():
		fmt.Fprintf(&b, "Signed-By:\n%s\n", strings.Trim(s.signedBy, "\n"))
	case s.signedBy != "":
		fmt.Fprintf(&b, "Signed-By: %s\n", strings.Join(strings.Fields(s.signedBy), " "))
	}
	return b.String()
}

// deb822 joins sources into one file.
func deb822(sources []source) string {
	stanzas := make([]string, len(sources))
	for i, s := range sources {
		stanzas[i] = s.String()
	}
	return strings.Join(stanzas, "\n")
}

// pick returns the sources of the first release that this machine offers.
func pick(all []source, suites []string) (suite string, sources []source, err error) {
	for _, suite := range suites {
		base := false
		for _, s := range all {
			if !s.hasSuite(suite) {
				continue
			}
			s = s.of(suite)
			base = base || slices.Contains(s.suites, suite)
			if err := s.checkKey(); err != nil {
				return "", nil, err
			}
			sources = append(sources, s)
		}
		if base {
			return suite, sources, nil
		}
		sources = nil
	}
	return "", nil, fmt.Errorf("this machine's apt sources (%d read) offer none of the Debian releases %s with component main; "+
		"add one under /etc/apt/sources.list.d, or write a file of sources and set CUBE_APT_SOURCES to its path",
		len(all), strings.Join(suites, ", "))
}

func (s source) checkKey() error {
	for _, file := range s.keyrings() {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("%s: its keyring cannot be read: %w; install the package debian-archive-keyring", s.where, err)
		}
	}
	return nil
}
