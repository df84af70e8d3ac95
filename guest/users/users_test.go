package users

import (
	"reflect"
	"strings"
	"testing"
)

const passwd = `root:x:0:0:root:/root:/bin/bash
broken:x:abc:0::/:/bin/sh
short:x:5
user:x:1000:1001:,,,:/home/user:/bin/bash
relative:x:1002:1002::home:/bin/sh
huge:x:4294967295:1::/:/bin/sh
user:x:7:7::/second:/bin/sh
`

func TestFindTakesTheFirstWellFormedAccount(t *testing.T) {
	for name, want := range map[string]User{
		"root":     {Name: "root", Home: "/root", Shell: "/bin/bash"},
		"user":     {Name: "user", UID: 1000, GID: 1001, Home: "/home/user", Shell: "/bin/bash"},
		"relative": {Name: "relative", UID: 1002, GID: 1002, Home: "/", Shell: "/bin/sh"},
	} {
		got, ok := find(strings.NewReader(passwd), name)
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("find %q = %+v, %v; want %+v", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "nobody", "broken", "short", "huge", "user:x"} {
		if got, ok := find(strings.NewReader(passwd), name); ok {
			t.Errorf("find %q = %+v; want nothing", name, got)
		}
	}
}

func TestGroupsOfListsMemberships(t *testing.T) {
	const group = "root:x:0:\nsudo:x:27:other,user\nuser:x:1001:\ndocker:x:999:user,user\nbad:x:y:user\nusers:x:100:username\n"
	if got, want := groupsOf(strings.NewReader(group), "user"), []uint32{27, 999}; !reflect.DeepEqual(got, want) {
		t.Errorf("groups = %v, want %v", got, want)
	}
}

func TestGroupsAreBounded(t *testing.T) {
	group := strings.Repeat("g:x:5:user\n", 10*maxGroups)
	if got := len(groupsOf(strings.NewReader(group), "user")); got != maxGroups {
		t.Errorf("%d groups, want %d", got, maxGroups)
	}
}

func FuzzAccounts(f *testing.F) {
	f.Add(passwd, "user")
	f.Add(strings.Repeat(":", 1000), "")
	f.Add("user:x:1:2:3:4:5:6:7\x00", "user")
	f.Fuzz(func(t *testing.T, text, name string) {
		u, ok := find(strings.NewReader(text), name)
		if ok && (u.Name != name || u.Home == "" || u.Home[0] != '/' || u.UID == 1<<32-1) {
			t.Errorf("find %q in %q = %+v", name, text, u)
		}
		if n := len(groupsOf(strings.NewReader(text), name)); n > maxGroups {
			t.Errorf("%d groups", n)
		}
	})
}
