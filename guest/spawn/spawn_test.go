package spawn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cubesandbox/guest/users"
)

var whole = Request{
	User: "user", Cmd: "/bin/sh", Args: []string{"-c", "echo $A"}, Env: []string{"A=1", "B="},
	Cwd: "/tmp", Cgroup: "12", Terminal: true,
}

func TestRequestSurvivesTheWire(t *testing.T) {
	for _, q := range []Request{whole, {Args: []string{}, Env: []string{}}} {
		got, err := decodeRequest(q.encode())
		if err != nil || !reflect.DeepEqual(got, q) {
			t.Errorf("decoded %+v, %v; want %+v", got, err, q)
		}
	}
}

func TestTruncatedRequestIsRefused(t *testing.T) {
	b := whole.encode()
	for n := range b {
		if q, err := decodeRequest(b[:n]); err == nil {
			t.Errorf("the first %d of %d bytes decode to %+v", n, len(b), q)
		}
	}
	if _, err := decodeRequest(append(b, 0)); err == nil {
		t.Error("a byte too many is accepted")
	}
}

func TestFrameLongerThanAllowedIsNotRead(t *testing.T) {
	header := binary.LittleEndian.AppendUint32(nil, 1<<31)
	_, _, err := readBody(bytes.NewReader(nil), append(header, kindReady), maxAnswer)
	if !errors.Is(err, errForm) {
		t.Errorf("error %v, want %v", err, errForm)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add(whole.encode())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := decodeRequest(b)
		if err != nil {
			return
		}
		again, err := decodeRequest(q.encode())
		if err != nil || !reflect.DeepEqual(again, q) {
			t.Errorf("%+v became %+v, %v", q, again, err)
		}
	})
}

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
	want := []string{"PATH=/x", "HOME=/home/user", "USER=user", "LOGNAME=user", "A=2", "EMPTY="}
	if !slices.Equal(got, want) {
		t.Errorf("environment = %q, want %q", got, want)
	}
}

func TestProgramIsFoundInTheProcessesOwnPath(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"tool": 0o755, "data": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/nonexistent:" + dir}
	for cmd, want := range map[string]string{
		"tool": filepath.Join(dir, "tool"), "/abs/x": "/abs/x", "./rel": "/cwd/rel", "sub/rel": "/cwd/sub/rel",
		"data": "", "folder": "", "missing": "", "": "", "a\x00b": "",
	} {
		got, err := program(cmd, "/cwd", env)
		var failed *Error
		if got != want || (want == "") != (errors.As(err, &failed) && failed.Failure == FailureCommand) {
			t.Errorf("program(%q) = %q, %v; want %q", cmd, got, err, want)
		}
	}
}

func TestCgroupNameCannotLeaveItsRoot(t *testing.T) {
	if _, err := openCgroup("../init"); err == nil || !strings.Contains(err.Error(), "slash") {
		t.Errorf("error %v, want one about the slash", err)
	}
}
