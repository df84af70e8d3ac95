package clients

import (
	"os"
	"path/filepath"
	"testing"

	"cubesandbox/e2e/lab"
)

// What E2B's clients do inside a sandbox, a program for each part, of the same steps in
// both languages: with the newest client for JavaScript and the one that speaks the
// first version of the API, and with Python's, which is two.
var inside = map[string]language{
	"e2b":          in("guest", newestJS),
	"e2b-2.39":     in("guest", olderJS),
	"python":       in("guest", python),
	"python-async": in("guest", python, "async"),
}

// others are so much like one of the rest that make check is the first to run them.
var others = map[string]bool{"e2b-2.39": true, "python": true}

// in is a language whose programs are in another folder.
func in(folder string, l language, args ...string) language {
	l.folder, l.args = folder, args
	if l.ending == ".py" {
		l.beside = []string{"either.py"}
	}
	return l
}

func TestCommandsAreWhatE2BsClientsExpect(t *testing.T)  { runInside(t, "commands") }
func TestTerminalsAreWhatE2BsClientsExpect(t *testing.T) { runInside(t, "pty") }
func TestFilesAreWhatE2BsClientsExpect(t *testing.T)     { runInside(t, "entries") }
func TestWatchesAreWhatE2BsClientsExpect(t *testing.T)   { runInside(t, "watch") }

// TestGitWorksInsideAsE2BsClientsOfferIt: within the sandbox alone.
func TestGitWorksInsideAsE2BsClientsOfferIt(t *testing.T) { runInside(t, "git") }

// TestSecureAccessIsWhatE2BsClientsExpect: tokens and signed links, of copies too, and
// after a pause and a rollback.
func TestSecureAccessIsWhatE2BsClientsExpect(t *testing.T) { runInside(t, "secure") }

// TestAKillUnderAnyStreamIsToldAsE2BsClientsExpect: a reset, and then no such sandbox.
func TestAKillUnderAnyStreamIsToldAsE2BsClientsExpect(t *testing.T) { runInside(t, "killed") }

// runInside runs one program with each client, all at the same time. Together they must
// leave nothing.
func runInside(t *testing.T, name string) {
	s.Guard(t)
	t.Run("with", func(t *testing.T) {
		for client, l := range inside {
			if lab.Form() == "" && others[client] {
				continue
			}
			t.Run(client, func(t *testing.T) {
				t.Parallel()
				runBeside(t, t.TempDir(), l, name, environment(t), nil)
			})
		}
	})
	leftNothing(t)
}

// putBeside copies what a program needs beside itself.
func putBeside(t *testing.T, dir, folder string, names []string) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("testdata", folder, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
