package house

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestRootPackageImportsTheStandardLibraryOnly(t *testing.T) {
	for _, f := range readTree(t).gos {
		if f.dir != "." || f.test() {
			continue
		}
		for _, p := range f.imports() {
			if strings.Contains(p, ".") || strings.HasPrefix(p, module) {
				t.Errorf("%s imports %s: the root package is the language of the product and depends on nothing", f.name, p)
			}
		}
	}
}

// sentryInsides are the parts of gVisor that only the sentry's own binary may
// hold, so that a server works with every installed version of it.
func sentryInsides(p string) bool {
	for _, inside := range []string{"gvisor.dev/gvisor/runsc", "gvisor.dev/gvisor/pkg/sentry"} {
		if p == inside || strings.HasPrefix(p, inside+"/") {
			return true
		}
	}
	return false
}

func TestOnlyCubeSentryHoldsTheSentry(t *testing.T) {
	for _, f := range readTree(t).gos {
		if f.upstream() || f.dir == "cmd/cube-sentry" || f.dir == "gvisor/sentry" || strings.HasPrefix(f.dir, "gvisor/sentry/") {
			continue
		}
		for _, p := range f.imports() {
			if sentryInsides(p) || p == module+"/gvisor/sentry" {
				t.Errorf("%s imports %s: only cube-sentry may", f.name, p)
			}
		}
	}
	for _, cmd := range []string{"cube", "cube-network", "cube-guest"} {
		list := exec.Command("go", "list", "-deps", module+"/cmd/"+cmd)
		list.Dir = "../.."
		out, err := list.CombinedOutput()
		if err != nil {
			t.Errorf("go list %s: %v: %s", cmd, err, out)
		}
		for _, p := range strings.Fields(string(out)) {
			if sentryInsides(p) {
				t.Errorf("%s holds %s, by way of what it imports", cmd, p)
			}
		}
	}
}

// shared may be imported by everybody: the language, the wire contracts, and what
// is internal to all.
func shared(dir string) bool {
	return dir == "." || dir == "guest/agentapi" || strings.HasPrefix(dir, "guest/envdpb/") ||
		strings.HasPrefix(dir, "internal/") && !wiring(dir)
}

// wiring puts the parts together: it may import all, and only wiring imports it.
func wiring(dir string) bool {
	return slices.Contains([]string{"cmd", "scripts", "e2e", "internal/cli", "internal/local", "internal/serve"}, part(dir))
}

// edges are the imports between the parts of the tree that are meant. A part that
// is not named imports only what is shared. Tests may import more: they build real
// things.
var edges = map[string][]string{
	// The engine is where saved states, the stack of each sandbox and its agent
	// come together; it speaks to the last two by their wire protocols, and looks by the
	// agent's own rules whether that could put files back.
	"gvisor": {"image", "network", "network/api", "guest/agentclient", "guest/layer"},
	// A template is booted once, and commands run in it before it is saved.
	"template": {"guest/agentclient"},
	// The demonstration is the probe, told as a story.
	"demo": {"probe"},
	// Both look at a server as its users do, through our client.
	"probe": {"client"},
	"bench": {"client"},
}

func TestPartsImportEachOtherOnlyWhereItIsMeant(t *testing.T) {
	for _, f := range readTree(t).gos {
		from := part(f.dir)
		if f.test() || f.upstream() || wiring(f.dir) {
			continue
		}
		for _, p := range f.imports() {
			dir, ok := strings.CutPrefix(p, module+"/")
			if !ok || shared(dir) || part(dir) == from || slices.Contains(edges[from], dir) {
				continue
			}
			t.Errorf("%s imports %s: declare the interface that it needs itself, or add the edge to internal/house with the reason", f.name, dir)
		}
	}
}

// part is the top folder of a package; below internal each folder is one.
func part(dir string) string {
	first, rest, _ := strings.Cut(dir, "/")
	if first != "internal" {
		return first
	}
	second, _, _ := strings.Cut(rest, "/")
	return first + "/" + second
}

// TestTheAgentHasNoGeneratorOfItsOwn: it is in every image, and what it drew from a state in
// its memory would be the same in all copies.
func TestTheAgentHasNoGeneratorOfItsOwn(t *testing.T) {
	for _, f := range readTree(t).gos {
		if f.test() || f.dir != "cmd/cube-guest" && part(f.dir) != "guest" {
			continue
		}
		for _, p := range f.imports() {
			if p == "math/rand" || p == "math/rand/v2" {
				t.Errorf("%s imports %s: use crypto/rand, which asks the kernel each time", f.name, p)
			}
		}
	}
}
