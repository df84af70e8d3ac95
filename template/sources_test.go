package template

import (
	"path/filepath"
	"strings"
	"testing"
)

const oneLine = `# a comment
deb-src http://mirror.test/debian bookworm main
deb [arch=amd64,arm64 signed-by=KEYRING] http://mirror.test/debian bookworm main contrib # ours
deb	http://mirror.test/debian-security	bookworm-security	main
deb [arch=s390x] http://mirror.test/debian bookworm main
deb cdrom:[Debian]/ bookworm main
deb http://other.test/apt bookworm stable
`

const stanzas = `Types: deb deb-src
# a comment between fields
URIs: https://a.test/debian https://b.test/debian
Suites: trixie trixie-updates trixie-backports
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
 -----END PGP PUBLIC KEY BLOCK-----

Types: deb
URIs: https://c.test/debian
Suites: trixie
Components: main
Enabled: no

Types: deb
URIs: https://d.test/node
Suites: trixie
Components: main
Signed-By: /usr/share/keyrings/node.gpg
`

// machine writes the two files as those of a machine and returns its etc/apt.
func machine(t *testing.T, list, sources string) string {
	etc := t.TempDir()
	keyring := filepath.Join(etc, "debian-archive.gpg")
	write(t, keyring, "key", 0o644)
	write(t, filepath.Join(etc, "sources.list"), strings.ReplaceAll(list, "KEYRING", keyring), 0o644)
	write(t, filepath.Join(etc, "sources.list.d", "x.sources"), sources, 0o644)
	write(t, filepath.Join(etc, "sources.list.d", "y.list.disabled"), "deb nonsense", 0o644)
	return etc
}

func TestSourcesOfBothFormsAreReadAndCutToTheRelease(t *testing.T) {
	etc := machine(t, oneLine, stanzas)
	all, err := readSourcesUnder(etc)
	if err != nil {
		t.Fatal(err)
	}
	suite, got, err := pick(all, []string{"forky", "bookworm", "trixie"})
	want := "Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm\nComponents: main contrib\nSigned-By: " +
		etc + "/debian-archive.gpg\n\nTypes: deb\nURIs: http://mirror.test/debian-security\nSuites: bookworm-security\nComponents: main\n"
	if err != nil || suite != "bookworm" || deb822(got) != want {
		t.Errorf("one-line: got %s, %v:\n%s\nwant:\n%s", suite, err, deb822(got), want)
	}
	suite, got, err = pick(all, []string{"trixie"})
	want = "Types: deb\nURIs: https://a.test/debian https://b.test/debian\nSuites: trixie trixie-updates\nComponents: main\nSigned-By:\n" +
		" -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n -----END PGP PUBLIC KEY BLOCK-----\n"
	if err != nil || suite != "trixie" || deb822(got) != want {
		t.Errorf("deb822: got %s, %v:\n%s\nwant:\n%s", suite, err, deb822(got), want)
	}
}

func TestWhatIsWrittenIsReadBackEqual(t *testing.T) {
	all, err := parseDeb822("x", stanzas)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseDeb822("y", deb822(all))
	if err != nil || deb822(again) != deb822(all) || len(all) != 2 {
		t.Errorf("got %d sources, %v:\n%s\nwant:\n%s", len(again), err, deb822(again), deb822(all))
	}
}

func TestMachineWithoutTheReleaseIsToldWhatToDo(t *testing.T) {
	all, err := readSourcesUnder(machine(t, "deb http://other.test/ noble main\n", stanzas))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = pick(all, []string{"bookworm"})
	if err == nil || !strings.Contains(err.Error(), "CUBE_APT_SOURCES") || !strings.Contains(err.Error(), "bookworm") {
		t.Errorf("got %v", err)
	}
}

func TestUpdatesAloneAreNoRelease(t *testing.T) {
	all, err := parseOneLine("x", "deb http://m.test/d bookworm-updates main\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, got, err := pick(all, []string{"bookworm"}); err == nil {
		t.Errorf("got %v, want an error", got)
	}
}

func TestMissingKeyringIsNamed(t *testing.T) {
	all, err := parseOneLine("/etc/apt/sources.list", "deb [signed-by=/nowhere/debian.gpg] http://m.test/d bookworm main\n")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = pick(all, []string{"bookworm"})
	if err == nil || !strings.Contains(err.Error(), "/etc/apt/sources.list:1") || !strings.Contains(err.Error(), "debian-archive-keyring") {
		t.Errorf("got %v", err)
	}
}

func TestBrokenSourcesNameFileAndLine(t *testing.T) {
	for _, test := range []struct {
		name, text, want string
		parse            func(file, text string) ([]source, error)
	}{
		{"no suite", "\ndeb http://x\n", "f:2: want deb, an address and a suite", parseOneLine},
		{"open option", "deb [arch=amd64 http://x y main\n", "f:1: options without", parseOneLine},
		{"no colon", "Types: deb\nURIs\n", "f:2: want \"Field: value\"", parseDeb822},
		{"continuation", "\n x\n", "f:2: a continuation of nothing", parseDeb822},
		{"no uri", "\nTypes: deb\nSuites: x\n", "f:2: a source without URIs or Suites", parseDeb822},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := test.parse("f", test.text); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestOnlyPublicAddressesGoIntoTheSandbox(t *testing.T) {
	s := source{uris: []string{
		"http://user:secret@m.test/d", "file:/srv/d", "copy:/srv/d", "http://localhost:3142/d", "http://127.0.0.1/d", "http://[::1]/d",
		"https://m.test/d",
	}}
	got, ok := s.public()
	if !ok || len(got.uris) != 1 || got.uris[0] != "https://m.test/d" {
		t.Errorf("got %v, %t, want the last alone", got.uris, ok)
	}
	if got, ok := (source{uris: s.uris[:6]}).public(); ok {
		t.Errorf("got %v, want none", got.uris)
	}
}

func FuzzSources(f *testing.F) {
	f.Add(oneLine)
	f.Add(stanzas)
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(file, text string) ([]source, error){parseOneLine, parseDeb822} {
			all, err := parse("f", text)
			if err != nil {
				continue
			}
			for _, s := range all {
				if len(s.uris) == 0 || len(s.suites) == 0 {
					t.Errorf("accepted a source without address or suite: %+v", s)
				}
			}
		}
	})
}
