package bareinit

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// encode makes a payload of words and strings.
func encode(words [RequestWords]uint32, groups []uint32, texts ...string) []byte {
	var b []byte
	for _, w := range append(words[:], groups...) {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	for _, s := range texts {
		b = append(append(b, s...), 0)
	}
	return b
}

var whole = encode([RequestWords]uint32{FlagTerminal, 1000, 1001, 2, 2, 3, 1}, []uint32{7, 8},
	"/cg", "/home", "/bin/a", "/usr/bin/a", "a", "", "c", "K=v")

func parseBytes(b []byte) bool {
	copy(payload[:], b)
	return parse(uint32(len(b)))
}

// stringAt reads the string at an address.
func stringAt(p uintptr) string {
	at := p - uintptr(unsafe.Pointer(&payload))
	return string(payload[at : int(at)+bytes.IndexByte(payload[at:], 0)])
}

// vector reads the pointers from one that is in pointers up to a 0.
func vector(p uintptr) (texts []string) {
	for i := (p - uintptr(unsafe.Pointer(&pointers))) / 8; pointers[i] != 0; i++ {
		texts = append(texts, stringAt(pointers[i]))
	}
	return texts
}

func TestParse(t *testing.T) {
	if !parseBytes(whole) {
		t.Fatal("a good request is refused")
	}
	if !req.terminal || req.cwdOptional || req.uid != 1000 || req.gid != 1001 || req.nGroups != 2 {
		t.Errorf("request %+v", req)
	}
	argv, envp := vector(req.argv), vector(req.envp)
	if stringAt(req.cgroup) != "/cg" || stringAt(req.cwd) != "/home" || len(req.candidates) != 2 || stringAt(req.candidates[1]) != "/usr/bin/a" {
		t.Errorf("paths of %+v", req)
	}
	if len(argv) != 3 || argv[0] != "a" || argv[1] != "" || argv[2] != "c" || len(envp) != 1 || envp[0] != "K=v" {
		t.Errorf("arguments %q, environment %q", argv, envp)
	}
	if !parseBytes(encode([RequestWords]uint32{FlagCwdOptional, 0, 0, 0, 1, 1, 0}, nil, "", "/", "/x", "x")) {
		t.Fatal("a request without group and environment is refused")
	}
	if req.cgroup != 0 || !req.cwdOptional || len(vector(req.envp)) != 0 || len(vector(req.argv)) != 1 {
		t.Errorf("request %+v, environment %q", req, vector(req.envp))
	}
}

func TestParseRefusesWhatIsMalformed(t *testing.T) {
	for n := range whole {
		if parseBytes(whole[:n]) {
			t.Errorf("the first %d of %d bytes are accepted", n, len(whole))
		}
	}
	if parseBytes(append(bytes.Clone(whole), 'x', 0)) {
		t.Error("a string too many is accepted")
	}
	for i := WordGroups; i < RequestWords; i++ {
		for _, v := range []uint32{1<<32 - 1, 1 << 31, MaxStrings + 1} {
			b := bytes.Clone(whole)
			binary.LittleEndian.PutUint32(b[i*4:], v)
			if parseBytes(b) {
				t.Errorf("word %d = %d is accepted", i, v)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add(encode([RequestWords]uint32{0, 0, 0, 0, 1, 1, 0}, nil, "", "", "", ""))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > MaxRequest || !parseBytes(b) {
			return
		}
		low, high := uintptr(unsafe.Pointer(&payload)), uintptr(unsafe.Pointer(&payload))+uintptr(len(b))
		argv, envp := vector(req.argv), vector(req.envp)
		for _, p := range append(req.candidates, req.cwd) {
			if p < low || p >= high {
				t.Fatalf("%x is outside of the request", p)
			}
		}
		if len(argv) != int(word(b[WordArgs*4:])) || len(envp) != int(word(b[WordEnv*4:])) {
			t.Errorf("%d arguments, %d variables", len(argv), len(envp))
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	copy(payload[:], whole)
	if n := testing.AllocsPerRun(100, func() { parse(uint32(len(whole))) }); n != 0 {
		t.Errorf("parse allocates %v times", n)
	}
	if unix.CAP_LAST_CAP < 40 {
		t.Errorf("only %d capabilities are known", unix.CAP_LAST_CAP)
	}
}
