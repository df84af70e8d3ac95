package watch

import (
	"errors"
	"fmt"
	"io"
	"os"

	"cubesandbox/guest/envdpb/filesystem"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth bounds how deep below the watched directory changes are seen.
	maxDepth = 256
	// listed is how many entries of a directory are read at once.
	listed = 256
)

const openDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC

// begin watches the root and, if that is asked for, all below it. It runs as the user.
func (w *Watcher) begin(path string) error {
	w.root = path
	fd, err := unix.Open(path, openDir, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("path %s: %w", path, ErrNotDirectory)
	}
	if err != nil {
		return &os.PathError{Op: "watch", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	kind, err := w.set.kind(fd)
	if err != nil {
		return &os.PathError{Op: "watch", Path: path, Err: err}
	}
	if network[kind] && !w.options.Network {
		return fmt.Errorf("%w: %s", ErrNetwork, path)
	}
	return w.attach(dir, &node{}, rootMask, nil)
}

// enter watches a directory that is new in the tree, with all below it, and reports
// what is in it already. It runs as the user.
func (w *Watcher) enter(parent *node, name string, describe describer) error {
	path := absolute(w.root, parent.child(name))
	fd, err := unix.Open(path, openDir|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil // gone again, or not for this user
	}
	return w.descend(fd, &node{parent: parent, name: name}, func(rel string) error {
		return w.tell(rel, filesystem.EventType_EVENT_TYPE_CREATE, describe)
	})
}

// descend watches a directory below the root, which it closes, if it is of a kind
// that can be watched.
func (w *Watcher) descend(fd int, n *node, found func(rel string) error) error {
	dir := os.NewFile(uintptr(fd), n.name)
	defer dir.Close()
	kind, err := w.set.kind(fd)
	if err != nil || n.depth() > maxDepth || pseudo[kind] || network[kind] && !w.options.Network {
		return nil
	}
	return w.attach(dir, n, belowMask, found)
}

// attach watches a directory and, if that is asked for, all below it. found, if it is
// not nil, is told of everything that is in it.
func (w *Watcher) attach(dir *os.File, n *node, mask uint32, found func(rel string) error) error {
	n, err := w.add(dir, n, mask)
	if err != nil || n == nil || !w.options.Recursive {
		return err
	}
	var names map[string]bool
	if found != nil {
		names = make(map[string]bool)
	}
	for {
		entries, err := dir.ReadDir(listed)
		for _, e := range entries {
			if err := w.entry(dir, n, e, names, found); err != nil {
				return err
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil // gone meanwhile
		}
		if len(entries) == 0 {
			break
		}
	}
	if len(names) == 0 {
		return nil
	}
	return w.control(func(fd int) error {
		pending, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // what is queued, in bytes
		w.tree.found[n.wd] = &finding{names, w.tree.consumed + int64(pending)}
		return err
	})
}

// entry takes care of one entry of a directory that is walked.
func (w *Watcher) entry(dir *os.File, n *node, e os.DirEntry, names map[string]bool, found func(rel string) error) error {
	if found != nil {
		names[e.Name()] = true
		if err := found(n.child(e.Name())); err != nil {
			return err
		}
	}
	if !e.IsDir() {
		return nil
	}
	fd, err := unix.Openat(int(dir.Fd()), e.Name(), openDir|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil // gone again, or not for this user
	}
	return w.descend(fd, &node{parent: n, name: e.Name()}, found)
}

// add watches an open directory: as the current one of this thread, so that it is the
// same that was opened. It returns the directory's node, nil if it is in the tree at
// another place as well, by a mount.
func (w *Watcher) add(dir *os.File, n *node, mask uint32) (*node, error) {
	if err := unix.Fchdir(int(dir.Fd())); err != nil {
		return nil, nil // to be listed, but not to be entered
	}
	if !w.set.enter() {
		return nil, fmt.Errorf("%w: more than %d directories would be watched; watch a part of them", ErrTooMany, maxWatches)
	}
	err := w.control(func(fd int) error {
		wd, err := unix.InotifyAddWatch(fd, ".", mask|unix.IN_ONLYDIR)
		n.wd = int32(wd)
		return err
	})
	known := w.tree.nodes[n.wd]
	if err != nil || known != nil {
		w.set.leave(1)
	}
	switch {
	case errors.Is(err, unix.ENOSPC):
		return nil, fmt.Errorf("%w: the kernel watches no more directories; watch a part of them", ErrTooMany)
	case err != nil:
		return nil, fmt.Errorf("watch %s: %w", w.root, err)
	case known != nil && known.parent == n.parent && known.name == n.name:
		return known, nil
	case known != nil:
		return w.moved(dir, known, n), nil
	}
	w.tree.nodes[n.wd] = n
	return n, nil
}

// Kinds of file systems, by the numbers of statfs(2).
var (
	// network file systems change without the kernel's knowledge.
	network = map[int64]bool{
		0x6969:     true, // NFS
		0x517b:     true, // SMB
		0xff534d42: true, // CIFS
		0xfe534d42: true, // SMB 2
		0x65735546: true, // FUSE
		0x01021997: true, // 9P
		0x00c36400: true, // Ceph
		0x5346414f: true, // AFS
	}
	// pseudo file systems tell inotify nothing, and some have no end.
	pseudo = map[int64]bool{
		unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true,
		unix.CGROUP2_SUPER_MAGIC: true, unix.DEVPTS_SUPER_MAGIC: true,
	}
)

// kindOf is the kind of file system that an open file is on.
func kindOf(fd int) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return 0, err
	}
	return int64(uint32(st.Type)), nil
}
