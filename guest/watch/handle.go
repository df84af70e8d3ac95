package watch

import (
	"context"
	"errors"
	"fmt"

	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/users"

	"golang.org/x/sys/unix"
)

// describer returns what is at a path, nil if nothing can be said of it.
type describer func(path string) *filesystem.EntryInfo

// handle takes changes into account and reports them, in their order.
func (w *Watcher) handle(ctx context.Context, changes []change) error {
	defer w.tree.settle()
	if !w.needsUser(changes) {
		return w.all(changes, nil)
	}
	err := w.set.runner.Do(ctx, w.user, func(users.User) error {
		if !w.options.Entries {
			return w.all(changes, nil)
		}
		return w.all(changes, w.set.describe())
	})
	for _, ours := range []error{nil, ErrLost, ErrTooMany, ErrGone, ErrClosed} {
		if errors.Is(err, ours) {
			return err
		}
	}
	return fmt.Errorf("watch %s: %w", w.root, err)
}

// needsUser reports whether the user's rights are needed to handle changes: to look at
// what they are of, or to watch what they have made.
func (w *Watcher) needsUser(changes []change) bool {
	for _, c := range changes {
		if w.options.Recursive && c.comes() {
			return true
		}
		if w.options.Entries && c.mask&(unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_MODIFY|unix.IN_ATTRIB) != 0 {
			return true
		}
	}
	return false
}

func (w *Watcher) all(changes []change, describe describer) error {
	for _, c := range changes {
		if err := w.one(c, describe); err != nil {
			return err
		}
	}
	return nil
}

// one takes one change into account and reports it.
func (w *Watcher) one(c change, describe describer) error {
	if c.mask&unix.IN_Q_OVERFLOW != 0 {
		return fmt.Errorf("%w: more changed at once than the kernel keeps; look at the directory and watch it again", ErrLost)
	}
	n := w.tree.nodes[c.wd]
	if n == nil {
		return nil // of a directory that has left the tree
	}
	if c.mask&unix.IN_IGNORED != 0 {
		w.tree.drop(c.wd)
		w.set.leave(1)
		if n.parent == nil {
			return fmt.Errorf("%w: %s; nothing of that name is watched", ErrGone, w.root)
		}
		return nil
	}
	rel := "."
	switch {
	case c.name != "":
		rel = n.child(c.name)
	case n.parent != nil:
		return nil // its parent reports it
	}
	if c.mask&unix.IN_CREATE != 0 && w.tree.wasFound(c.wd, c.name) {
		return nil
	}
	if c.mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0 {
		w.tree.wasFound(c.wd, c.name) // a later creation is another one
	}
	for _, t := range c.types() {
		if err := w.tell(rel, t, describe); err != nil {
			return err
		}
	}
	if !w.options.Recursive {
		return nil
	}
	if c.goes() {
		w.leave(n, c.name)
	}
	if c.comes() {
		return w.enter(n, c.name, describe)
	}
	return nil
}

// tell reports an event.
func (w *Watcher) tell(rel string, t filesystem.EventType, describe describer) error {
	e := Event{Name: rel, Type: t}
	if w.options.Entries && hasEntry(t) && describe != nil {
		e.Entry = describe(absolute(w.root, rel))
	}
	return w.report(e)
}

// leave forgets a directory that was moved away. Where it is moved to another place
// in the tree, it is entered there as a new one.
func (w *Watcher) leave(parent *node, name string) {
	top := w.tree.childOf(parent, name)
	if top == nil {
		return
	}
	wds := w.tree.take(top)
	w.set.leave(len(wds))
	w.control(func(fd int) error {
		for _, wd := range wds {
			unix.InotifyRmWatch(fd, uint32(wd)) // gone already, or it goes now
		}
		return nil
	})
}
