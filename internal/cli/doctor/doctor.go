// Package doctor looks at a machine and says what it lacks for Cube, and how to mend
// it. It changes nothing.
package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK Level = "ok"
	// Warn: it works, but not as well as it could, or not everything does.
	Warn Level = "warn"
	// Fail: it does not work until that is mended.
	Fail Level = "fail"
)

// Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Found is what is there.
	Found string `json:"found"`
	// Mend says what to do; empty when the level is OK.
	Mend string `json:"mend,omitempty"`
}

// Config says what to look at.
type Config struct {
	// Root is the directory that holds proc and sys; "/" but in tests.
	Root string
	// UID is who we are.
	UID int
	// Arch is the processor's, as Go names it.
	Arch string
	// StateDir and BinDir are those of the server.
	StateDir, BinDir string
	// Server is the one that is asked; see there.
	Server Server
}

// Server is what is known of the server.
type Server struct {
	// API and Data are its addresses, host:port.
	API, Data string
	// Answers says whether it does; Error is why not.
	Answers bool
	Error   string
	// Version is the server's where it is known, Ours that of the command line.
	Version, Ours string
	// Elsewhere: it is on another machine.
	Elsewhere bool
}

// check is one: its name and what looks.
type check struct {
	name string
	look func(context.Context, Config) Finding
}

var checks = []check{
	{"root", root}, {"kernel", kernel}, {"processor", arch}, {"memory", memory}, {"disk", disk}, {"cgroups", cgroups},
	{"user namespaces", userNamespaces}, {"seccomp", seccomp}, {"memory maps", mapCount}, {"process ids", pidMax},
	{"open files", openFiles}, {"programs", programs}, {"template tools", buildTools}, {"state directory", stateDir},
	{"API key", apiKey}, {"template", template}, {"server", serving}, {"API port", apiPort}, {"data plane port", dataPort},
	{"names", names}, {"clock", clock},
}

// Run makes all checks, in order.
func Run(ctx context.Context, c Config) []Finding {
	out := make([]Finding, len(checks))
	for i, k := range checks {
		out[i] = k.look(ctx, c)
		out[i].Check = k.name
	}
	return out
}

// Worst is the worst level of findings.
func Worst(all []Finding) Level {
	worst := OK
	for _, f := range all {
		if f.Level == Fail || f.Level == Warn && worst == OK {
			worst = f.Level
		}
	}
	return worst
}

func ok(found string) Finding         { return Finding{Level: OK, Found: found} }
func warn(found, mend string) Finding { return Finding{Level: Warn, Found: found, Mend: mend} }
func fail(found, mend string) Finding { return Finding{Level: Fail, Found: found, Mend: mend} }

// read returns a small file of proc or sys, without the space around it.
func (c Config) read(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(c.Root, name))
	return strings.TrimSpace(string(b)), err
}
