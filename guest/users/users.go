// Package users reads the accounts of a sandbox from /etc/passwd and
// /etc/group. Both belong to whoever is root in the sandbox, so their size and
// form are not trusted, and only regular files are read.
package users

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrUnknown means that there is no such account.
var ErrUnknown = errors.New("invalid username")

// maxFile bounds the files of accounts, in bytes; more is not read.
const maxFile = 1 << 20

// maxGroups bounds the supplementary groups of an account.
const maxGroups = 256

// Root is the account that exists even where /etc/passwd does not.
var Root = User{Name: "root", Home: "/root", Shell: "/bin/sh"}

// User is an account.
type User struct {
	Name     string
	UID, GID uint32
	// Groups are the supplementary groups.
	Groups      []uint32
	Home, Shell string
}

// Lookup finds an account by name in the root directory of the calling thread.
// Its error is ErrUnknown when there is none.
func Lookup(name string) (User, error) {
	passwd, err := open("/etc/passwd")
	if err != nil {
		if name == Root.Name {
			return Root, nil
		}
		return User{}, fmt.Errorf("%w: '%s'", ErrUnknown, name)
	}
	defer passwd.Close()
	u, ok := find(passwd, name)
	if !ok {
		return User{}, fmt.Errorf("%w: '%s'", ErrUnknown, name)
	}
	if group, err := open("/etc/group"); err == nil {
		defer group.Close()
		u.Groups = groupsOf(group, name)
	}
	return u, nil
}

// Cache is a Lookup that reads the files only when they have changed. The zero
// Cache is ready. It may be used concurrently.
type Cache struct {
	mu    sync.Mutex // guards all below
	files [2]version
	known map[string]User
}

// maxKnown bounds the accounts of a Cache.
const maxKnown = 64

// version tells one content of a file from another.
type version struct {
	dev, ino, size int64
	mtime, ctime   unix.Timespec
}

func versionOf(path string) version {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return version{}
	}
	return version{int64(st.Dev), int64(st.Ino), st.Size, st.Mtim, st.Ctim}
}

// Lookup is Lookup of the package.
func (c *Cache) Lookup(name string) (User, error) {
	now := [2]version{versionOf("/etc/passwd"), versionOf("/etc/group")}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now != c.files || len(c.known) >= maxKnown {
		c.files, c.known = now, make(map[string]User)
	}
	if u, ok := c.known[name]; ok {
		return u, nil
	}
	u, err := Lookup(name)
	if err == nil {
		c.known[name] = u
	}
	return u, err
}

// Names maps the numbers of accounts and groups to their names.
type Names struct{ users, groups map[uint32]string }

// ReadNames reads the names of all accounts and groups in the root directory of
// the calling thread.
func ReadNames() Names {
	return Names{users: readNames("/etc/passwd"), groups: readNames("/etc/group")}
}

// User returns the name of an account, or its number when it has none.
func (n Names) User(uid uint32) string { return nameOf(n.users, uid) }

// Group returns the name of a group, or its number when it has none.
func (n Names) Group(gid uint32) string { return nameOf(n.groups, gid) }

func nameOf(names map[uint32]string, id uint32) string {
	if name, ok := names[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

// open opens a regular file without waiting: a FIFO in its place must not hold
// the agent.
func open(path string) (io.ReadCloser, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f := os.NewFile(uintptr(fd), path)
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, maxFile), f}, nil
}

// find returns the account of that name in a passwd file.
func find(r io.Reader, name string) (u User, ok bool) {
	lines(r, 7, func(f []string) bool {
		if f[0] != name || name == "" {
			return true
		}
		uid, err1 := number(f[2])
		gid, err2 := number(f[3])
		if err1 != nil || err2 != nil {
			return true
		}
		u = User{Name: name, UID: uid, GID: gid, Home: f[5], Shell: f[6]}
		if !strings.HasPrefix(u.Home, "/") {
			u.Home = "/"
		}
		ok = true
		return false
	})
	return u, ok
}

// groupsOf returns the groups in a group file that name is a member of.
func groupsOf(r io.Reader, name string) (groups []uint32) {
	lines(r, 4, func(f []string) bool {
		for member := range strings.SplitSeq(f[3], ",") {
			if member != name {
				continue
			}
			if gid, err := number(f[2]); err == nil {
				groups = append(groups, gid)
			}
			break
		}
		return len(groups) < maxGroups
	})
	return groups
}

func readNames(path string) map[uint32]string {
	f, err := open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	names := make(map[uint32]string)
	lines(f, 3, func(f []string) bool {
		if id, err := number(f[2]); err == nil {
			if _, taken := names[id]; !taken {
				names[id] = f[0]
			}
		}
		return true
	})
	return names
}

// lines calls f with the fields of each line that has at least min, until f
// returns false.
func lines(r io.Reader, min int, f func(fields []string) bool) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), 64<<10)
	for s.Scan() {
		if fields := strings.Split(s.Text(), ":"); len(fields) >= min && !f(fields) {
			return
		}
	}
}

// number parses the id of an account or group; 2^32-1 means "no change" to the
// kernel and is none.
func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err == nil && n == 1<<32-1 {
		err = strconv.ErrRange
	}
	return uint32(n), err
}
