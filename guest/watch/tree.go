package watch

import (
	"path"
	"path/filepath"
)

// node is a watched directory.
type node struct {
	wd     int32
	parent *node // nil for the root
	name   string
}

// rel is the node's path relative to the root, "." for the root.
func (n *node) rel() string {
	if n.parent == nil {
		return "."
	}
	p := n.name
	for n = n.parent; n.parent != nil; n = n.parent {
		p = n.name + "/" + p
	}
	return p
}

// child is the path of what is in a node, relative to the root.
func (n *node) child(name string) string {
	if n.parent == nil {
		return name
	}
	return n.rel() + "/" + name
}

func (n *node) depth() (d int) {
	for ; n.parent != nil; n = n.parent {
		d++
	}
	return d
}

// below reports whether a node is top or somewhere in it.
func (n *node) below(top *node) bool {
	for ; n != nil; n = n.parent {
		if n == top {
			return true
		}
	}
	return false
}

// tree is the watched directories of one watcher.
type tree struct {
	nodes map[int32]*node // by watch descriptor
	// consumed is how many bytes of events were read.
	consumed int64
	// found has the names that were reported because they were found in a new
	// directory: an event of the same creation may still come. By watch descriptor.
	found map[int32]*finding
}

// finding is what was found in one directory.
type finding struct {
	names map[string]bool
	until int64 // when tree.consumed is that, all events from before it have come
}

func newTree() tree {
	return tree{nodes: make(map[int32]*node), found: make(map[int32]*finding)}
}

// childOf returns the watched directory of that name in another, nil if there is none.
// Directories are rarely moved: so it may look at all of them.
func (t *tree) childOf(parent *node, name string) *node {
	for _, n := range t.nodes {
		if n.parent == parent && n.name == name {
			return n
		}
	}
	return nil
}

// take removes a node and all below it, and returns their watch descriptors.
func (t *tree) take(top *node) (wds []int32) {
	for wd, n := range t.nodes {
		if n.below(top) {
			wds = append(wds, wd)
		}
	}
	for _, wd := range wds {
		t.drop(wd)
	}
	return wds
}

// drop forgets a directory that is watched no more.
func (t *tree) drop(wd int32) {
	delete(t.nodes, wd)
	delete(t.found, wd)
}

// wasFound reports whether the creation of a name was reported already, and has it
// count once.
func (t *tree) wasFound(wd int32, name string) bool {
	f := t.found[wd]
	if f == nil || !f.names[name] {
		return false
	}
	delete(f.names, name)
	return true
}

// settle forgets findings of which no event can come any more.
func (t *tree) settle() {
	for wd, f := range t.found {
		if f.until <= t.consumed {
			delete(t.found, wd)
		}
	}
}

// absolute is the path of something in the tree, given relative to the root.
func absolute(root, rel string) string {
	if rel == "." {
		return root
	}
	return filepath.Join(root, path.Clean("/"+rel))
}
