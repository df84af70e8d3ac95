package spawn

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"cubesandbox/guest/bareinit"
	"cubesandbox/guest/users"
)

var account = users.User{Name: "user", UID: 1000, Home: "/home/user"}

func TestResolveStartsAtHome(t *testing.T) {
	for in, want := range map[string]string{
		"": "/home/user", "~": "/home/user", "~/a": "/home/user/a", "a/b": "/home/user/a/b", "~x": "/home/user/~x",
		"/etc/../tmp/": "/tmp", "..": "/home", "../../../..": "/",
	} {
		if got := Resolve(account, in); got != want {
			t.Errorf("Resolve(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLaterVariablesWin(t *testing.T) {
	got := environment(account, []string{"A=1", "PATH=/x", "A=2", "=bad", "alsobad", "NUL=\x00", "EMPTY="})
	want := []string{"PATH=/x", "HOME=/home/user", "USER=user", "LOGNAME=user", "E2B_SANDBOX=true", "A=2", "EMPTY="}
	if !slices.Equal(got, want) {
		t.Errorf("environment = %q, want %q", got, want)
	}
}

func TestCommandIsLookedForInTheProcessesOwnPath(t *testing.T) {
	for cmd, want := range map[string][]string{
		"tool": {"/a/tool", "./tool", "rel/tool"}, "/abs/x": {"/abs/x"}, "./rel": {"./rel"}, "sub/rel": {"sub/rel"},
	} {
		got, err := candidates(cmd, []string{"A=1", "PATH=/a::rel"})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("candidates(%q) = %q, %v; want %q", cmd, got, err, want)
		}
	}
	if got, err := candidates("x", nil); err != nil || len(got) != 6 || got[0] != "/usr/local/sbin/x" {
		t.Errorf("without PATH: %q, %v", got, err)
	}
}

func TestRequestsThatCannotBeAreRefused(t *testing.T) {
	for name, q := range map[string]Request{
		"no command":      {},
		"NUL in command":  {Cmd: "a\x00b"},
		"NUL in argument": {Cmd: "a", Args: []string{"\x00"}},
		"NUL in cwd":      {Cmd: "a", Cwd: "/\x00"},
		"too long":        {Cmd: "a", Args: []string{strings.Repeat("x", bareinit.MaxRequest)}},
		"too many":        {Cmd: "a", Args: make([]string, bareinit.MaxStrings)},
		"group elsewhere": {Cmd: "a", Cgroup: "../init"},
	} {
		var failed *Error
		if _, err := q.encode(account); !errors.As(err, &failed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
