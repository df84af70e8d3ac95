package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Sizes in bytes. What is zero in a whole block is not written.
const (
	bufferSize = 256 << 10
	blockSize  = 4 << 10
)

var zeros [blockSize]byte

// regular makes a regular file.
func (u *unpacker) regular(at int, name string, h *tar.Header) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, flags, 0o600)
	if err == unix.EEXIST {
		if _, err := remove(at, name); err != nil {
			return err
		}
		fd, err = unix.Openat(at, name, flags, 0o600)
	}
	if err != nil {
		return fmt.Errorf("make: %w", err)
	}
	defer unix.Close(fd)
	if err := u.fill(fd, h.Size); err != nil {
		return err
	}
	// In this order: a change of owner takes away rights that mode and attributes give.
	if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil {
		return fmt.Errorf("set the owner: %w", err)
	}
	if err := unix.Fchmod(fd, mode(h)); err != nil {
		return fmt.Errorf("set the mode: %w", err)
	}
	if err := u.xattrs(h, func(name string, value []byte) error { return unix.Fsetxattr(fd, name, value, 0) }); err != nil {
		return err
	}
	return setTime(fd, "", h.ModTime)
}

// fill writes the content of a file, with holes where it is zero.
func (u *unpacker) fill(fd int, size int64) error {
	end := int64(0) // of what was written
	for at := int64(0); at < size; {
		n, err := io.ReadFull(u.tr, u.buf[:min(size-at, bufferSize)])
		if err != nil {
			return fmt.Errorf("read the tar: %w", err)
		}
		for b := u.buf[:n]; len(b) > 0; {
			hole := zeroBlocks(b)
			at, b = at+int64(hole), b[hole:]
			data := dataBlocks(b)
			if err := writeAt(fd, b[:data], at); err != nil {
				return fmt.Errorf("write: %w", err)
			}
			if at, b = at+int64(data), b[data:]; data > 0 {
				end = at
			}
		}
	}
	u.done.Bytes += size
	if end == size {
		return nil
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		return fmt.Errorf("set the size: %w", err)
	}
	return nil
}

// zeroBlocks is how many bytes at the beginning of b are blocks of zeros.
func zeroBlocks(b []byte) (n int) {
	for n < len(b) && isZero(b[n:min(n+blockSize, len(b))]) {
		n = min(n+blockSize, len(b))
	}
	return n
}

// dataBlocks is how many bytes at the beginning of b are other blocks.
func dataBlocks(b []byte) (n int) {
	for n < len(b) && !isZero(b[n:min(n+blockSize, len(b))]) {
		n = min(n+blockSize, len(b))
	}
	return n
}

func isZero(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }

func writeAt(fd int, b []byte, at int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(fd, b, at)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// link makes another name of a file that is there.
func (u *unpacker) link(at int, name string, h *tar.Header) error {
	path, err := split(h.Linkname)
	if err != nil || len(path) == 0 {
		return fmt.Errorf("link to %s: %w", shown(h.Linkname), errors.Join(err, unix.EINVAL))
	}
	dir, err := unix.Openat(u.open[0].fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for _, p := range path[:len(path)-1] {
		if err != nil {
			break
		}
		var next int
		next, err = openDirectory(dir, p)
		unix.Close(dir)
		dir = next
	}
	if err != nil {
		return fmt.Errorf("link to %s: %w", shown(h.Linkname), err)
	}
	defer unix.Close(dir)
	err = again(at, name, func() error { return unix.Linkat(dir, path[len(path)-1], at, name, 0) })
	if err != nil {
		return fmt.Errorf("link to %s: %w", shown(h.Linkname), err)
	}
	return nil
}

// node makes what has no content, or removes what is to be absent.
func (u *unpacker) node(at int, name string, h *tar.Header) error {
	kind := uint32(0)
	switch h.Typeflag {
	case tar.TypeFifo:
		kind = unix.S_IFIFO
	case tar.TypeBlock:
		kind = unix.S_IFBLK
	case tar.TypeChar:
		if kind = unix.S_IFCHR; h.Devmajor == 0 && h.Devminor == 0 {
			u.absence = h.Name
			return absent(at, name)
		}
	}
	err := again(at, name, func() error {
		if kind == 0 {
			return unix.Symlinkat(h.Linkname, at, name)
		}
		return unix.Mknodat(at, name, kind|0o600, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	})
	if err != nil {
		return fmt.Errorf("make: %w", err)
	}
	if err := unix.Fchownat(at, name, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set the owner: %w", err)
	}
	if kind != 0 {
		if err := unix.Fchmodat(at, name, mode(h), 0); err != nil {
			return fmt.Errorf("set the mode: %w", err)
		}
	}
	// To open it might wait for somebody, or do something; it has a path without that.
	path := fmt.Sprintf("/proc/self/fd/%d/%s", at, name)
	if err := u.xattrs(h, func(name string, value []byte) error { return unix.Lsetxattr(path, name, value, 0) }); err != nil {
		return err
	}
	return setTime(at, name, h.ModTime)
}

// again makes something, after removing what has its name where there is something.
func again(at int, name string, make func() error) error {
	err := make()
	if err != unix.EEXIST {
		return err
	}
	if _, err := remove(at, name); err != nil {
		return err
	}
	return make()
}
