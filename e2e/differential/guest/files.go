package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Where files are: in the writable layer, in tmpfs, and, of the lower layer, what is
// changed.
const (
	layerDir = "/root/differential"
	tmpfsDir = "/dev/shm/differential"
)

// lowerPattern are files of the lower layer that nobody else needs here.
const lowerPattern = "/usr/lib/python3*/*.py"

// Parts that are texts.
const (
	namesPart = "names"
	lowerPart = "lower layer"
)

// file is held open from the start.
type file struct {
	name, path string // path is empty for one without a name
	fd         int
	large      bool
	// fixed: only operations that are made for it change it.
	fixed bool
}

// makeFiles makes all of them. large is the length of the two large ones, in bytes.
func (g *guest) makeFiles(r *rand.Rand, large int64) error {
	for _, dir := range []string{layerDir, tmpfsDir, filepath.Join(layerDir, "many")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		name string
		dir  string
		size int64
	}{
		{"small", layerDir, 3001}, {"medium", layerDir, 1<<20 + 77}, {"log", layerDir, 70_000}, {"cut", layerDir, 300_001},
		{"punched", layerDir, 1 << 20}, {"tmpfs small", tmpfsDir, 5000}, {"tmpfs medium", tmpfsDir, 2<<20 + 1},
		{"dense", layerDir, large},
	} {
		f, err := g.newFile(m.name, filepath.Join(m.dir, strings.ReplaceAll(m.name, " ", "-")))
		if err != nil {
			return err
		}
		f.large = m.name == "dense"
		if err := f.write(0, m.size, r.Uint64()); err != nil {
			return err
		}
	}
	sparse, err := g.newFile("sparse", filepath.Join(layerDir, "sparse"))
	if err != nil {
		return err
	}
	sparse.large = true
	if err := unix.Ftruncate(sparse.fd, large); err != nil {
		return err
	}
	for range 20 {
		if err := sparse.write(r.Int64N(large-70_000), 1+r.Int64N(70_000), r.Uint64()); err != nil {
			return err
		}
	}
	for i := range 60 {
		b := make([]byte, 1+r.IntN(20_000))
		fillBytes(b, r.Uint64())
		if err := os.WriteFile(filepath.Join(layerDir, "many", fmt.Sprint(i)), b, 0o644); err != nil {
			return err
		}
	}
	return g.newGhost(r)
}

// newFile makes an empty file and holds it.
func (g *guest) newFile(name, path string) (*file, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := &file{name: name, path: path, fd: fd}
	g.files = append(g.files, f)
	g.keep[fd] = true
	return f, nil
}

// newGhost makes a file without a name, in place of the one before.
func (g *guest) newGhost(r *rand.Rand) error {
	for i, f := range g.files {
		if f.name == "ghost" {
			g.files = append(g.files[:i:i], g.files[i+1:]...)
			delete(g.keep, f.fd)
			if err := unix.Close(f.fd); err != nil {
				return err
			}
			break
		}
	}
	f, err := g.newFile("ghost", filepath.Join(layerDir, "ghost"))
	if err != nil {
		return err
	}
	if err := errors.Join(f.write(0, 10_000+r.Int64N(500_000), r.Uint64()), os.Remove(f.path)); err != nil {
		return err
	}
	f.path = ""
	return f.write(r.Int64N(10_000), 20_000, r.Uint64())
}

func (g *guest) file(name string) *file {
	for _, f := range g.files {
		if f.name == name {
			return f
		}
	}
	panic("no file " + name)
}

// anyFile is any that everybody may write to.
func (g *guest) anyFile(r *rand.Rand) *file {
	for {
		if f := g.files[r.IntN(len(g.files))]; !f.fixed {
			return f
		}
	}
}

// write writes n bytes that follow from a seed.
func (f *file) write(off, n int64, seed uint64) error {
	for piece := int64(1 << 20); n > 0; seed++ {
		b := make([]byte, min(piece, n))
		fillBytes(b, seed)
		if _, err := unix.Pwrite(f.fd, b, off); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		off, n = off+int64(len(b)), n-int64(len(b))
	}
	return nil
}

func (f *file) size() int64 {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		panic(fmt.Sprintf("%s: fstat: %v", f.name, err)) // it is open
	}
	return st.Size
}

// place is a place in it, or behind its end a little.
func (f *file) place(r *rand.Rand, most int64) (off, n int64) {
	return r.Int64N(f.size() + page), 1 + r.Int64N(most)
}

// part is a file. It is read by pread(2) first.
func (f *file) part() (part, error) {
	size := f.size()
	return part{
		name: "file " + f.name, size: size, large: f.large,
		read: func(off int64, b []byte) ([]bool, error) { return nil, whole(unix.Pread(f.fd, b, off))(len(b)) },
		flip: func(off int64) error {
			b := make([]byte, 1)
			if _, err := unix.Pread(f.fd, b, off); err != nil {
				return err
			}
			b[0] ^= 0x40
			_, err := unix.Pwrite(f.fd, b, off)
			return err
		},
		ways: []way{
			f.opened("read(2)", unix.O_RDONLY, func(fd int, _ int64, b []byte) error { return readAll(fd, b) }),
			f.opened("O_DIRECT", unix.O_RDONLY|unix.O_DIRECT, func(fd int, off int64, b []byte) error {
				n, err := unix.Pread(fd, b[:len(b):(len(b)+page-1)&^(page-1)], off)
				return whole(n, err)(len(b))
			}),
			f.opened("preadv", unix.O_RDONLY, func(fd int, off int64, b []byte) error {
				n, err := unix.Preadv(fd, [][]byte{b[:len(b)/3], b[len(b)/3:]}, off)
				return whole(n, err)(len(b))
			}),
			f.mapped("a shared mapping", size, unix.MAP_SHARED),
			f.mapped("a private mapping", size, unix.MAP_PRIVATE),
			throughPipe("sendfile into a pipe", func(fd int, off int64, n int) (int, error) { return unix.Sendfile(fd, f.fd, &off, n) }),
			throughPipe("splice into a pipe", func(fd int, off int64, n int) (int, error) {
				moved, err := unix.Splice(f.fd, &off, fd, nil, n, 0)
				return int(moved), err
			}),
		},
	}, nil
}

func readAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		if err != nil || n == 0 {
			return fmt.Errorf("%d of %d bytes: %w", n, len(b), err)
		}
		b = b[n:]
	}
	return nil
}

// opened reads it through a descriptor that is opened for that.
func (f *file) opened(name string, flags int, read func(fd int, off int64, b []byte) error) way {
	return way{name, f.large && name != "read(2)", func() (func(int64, []byte) error, func(), error) {
		fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.fd), flags|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, nil, err
		}
		return func(off int64, b []byte) error { return read(fd, off, b) }, func() { unix.Close(fd) }, nil
	}}
}

// mapped reads it by loads from a new mapping.
func (f *file) mapped(name string, size int64, flags int) way {
	return way{name, flags == unix.MAP_PRIVATE, func() (func(int64, []byte) error, func(), error) {
		addr, err := mmap(0, uintptr(max(1, size)), unix.PROT_READ, flags, f.fd)
		if err != nil {
			return nil, nil, err
		}
		read := func(off int64, b []byte) error {
			if bad := loads(addr+uintptr(off), b); bad != nil {
				return errors.New("it cannot be loaded")
			}
			return nil
		}
		return read, func() { munmap(addr, uintptr(max(1, size))) }, nil
	}}
}

// names is all that is said of files but their content: names, kinds, modes, lengths,
// links.
func names() (part, error) {
	var out bytes.Buffer
	for _, root := range []string{layerDir, tmpfsDir} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return describe(&out, path, d.IsDir())
		})
		if err != nil {
			return part{}, err
		}
	}
	flip := func(int64) error { return os.WriteFile(filepath.Join(layerDir, "flipped"), nil, 0o600) }
	return textOf(namesPart, out.Bytes(), flip), nil
}

func describe(out *bytes.Buffer, path string, dir bool) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if dir {
		st.Size, st.Nlink = 0, 0 // which are as the file system likes
	}
	fmt.Fprintf(out, "%s %o %d:%d %d bytes, %d links", path, st.Mode, st.Uid, st.Gid, st.Size, st.Nlink)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		to, err := os.Readlink(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, " to %s", to)
	}
	value := make([]byte, 100)
	if n, err := unix.Lgetxattr(path, "user.differential", value); err == nil {
		fmt.Fprintf(out, " user.differential=%q", value[:n])
	}
	out.WriteByte('\n')
	if strings.HasPrefix(path, filepath.Join(layerDir, "many")) && st.Mode&unix.S_IFMT == unix.S_IFREG {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "\t%x\n", sha256.Sum256(content))
	}
	return nil
}

// lowerLayer is what is left of a folder of the lower layer, and what was made of it.
func lowerLayer() (part, error) {
	paths, err := lowerPaths()
	if err != nil {
		return part{}, err
	}
	var out bytes.Buffer
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return part{}, err
		}
		if err := describe(&out, path, false); err != nil {
			return part{}, err
		}
		fmt.Fprintf(&out, "\t%x\n", sha256.Sum256(content))
	}
	return textOf(lowerPart, out.Bytes(), nil), nil
}
