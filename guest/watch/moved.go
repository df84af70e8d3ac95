package watch

import (
	"os"

	"golang.org/x/sys/unix"
)

// moved takes into account that a directory that is known at another place was found
// where n is, and returns its node. It may have been moved there before the change that
// says so is read, and no other may come: the directory that it is in now was not
// watched then. It returns nil if the directory is at both places, by a mount. It runs as
// the user.
func (w *Watcher) moved(dir *os.File, known, n *node) *node {
	if n.below(known) || same(dir, absolute(w.root, known.rel())) {
		return nil
	}
	w.leave(n.parent, n.name) // what was there before is not there any more
	known.parent, known.name = n.parent, n.name
	return known
}

// same reports whether a path is that of an open directory.
func same(dir *os.File, path string) bool {
	var open, there unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &open) != nil || unix.Lstat(path, &there) != nil {
		return false
	}
	return open.Dev == there.Dev && open.Ino == there.Ino
}
