package watch

import (
	"bytes"
	"encoding/binary"

	"cubesandbox/guest/envdpb/filesystem"

	"golang.org/x/sys/unix"
)

// change is one record of inotify(7).
type change struct {
	wd   int32
	mask uint32
	name string // empty when it is about the watched directory itself
}

// recordSize is the length of a record without its name, in bytes.
const recordSize = unix.SizeofInotifyEvent

// parse splits what was read from an inotify descriptor. It stops where a record is
// not whole, which the kernel does not do.
func parse(b []byte) []change {
	changes := make([]change, 0, len(b)/(2*recordSize))
	for len(b) >= recordSize {
		c := change{wd: int32(binary.NativeEndian.Uint32(b)), mask: binary.NativeEndian.Uint32(b[4:])}
		size := uint64(binary.NativeEndian.Uint32(b[12:]))
		if size > uint64(len(b)-recordSize) {
			break
		}
		name, _, _ := bytes.Cut(b[recordSize:recordSize+size], []byte{0}) // padded with NUL
		c.name = string(name)
		changes = append(changes, c)
		b = b[recordSize+size:]
	}
	return changes
}

// Masks of the watches. Of the directories below, what happens to them is reported by
// the directory that they are in.
const (
	belowMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	rootMask  = belowMask | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

// types are the events that a change is, in the order in which clients get them.
// A name that goes away by a rename is a RENAME, the one that comes is a CREATE.
func (c change) types() []filesystem.EventType {
	var types []filesystem.EventType
	for _, t := range []struct {
		mask uint32
		is   filesystem.EventType
	}{
		{unix.IN_CREATE | unix.IN_MOVED_TO, filesystem.EventType_EVENT_TYPE_CREATE},
		{unix.IN_MOVED_FROM | unix.IN_MOVE_SELF, filesystem.EventType_EVENT_TYPE_RENAME},
		{unix.IN_ATTRIB, filesystem.EventType_EVENT_TYPE_CHMOD},
		{unix.IN_MODIFY, filesystem.EventType_EVENT_TYPE_WRITE},
		{unix.IN_DELETE | unix.IN_DELETE_SELF, filesystem.EventType_EVENT_TYPE_REMOVE},
	} {
		if c.mask&t.mask != 0 {
			types = append(types, t.is)
		}
	}
	return types
}

// hasEntry reports whether an event of this type can have an entry: after the others
// there is nothing of that name.
func hasEntry(t filesystem.EventType) bool {
	return t == filesystem.EventType_EVENT_TYPE_CREATE || t == filesystem.EventType_EVENT_TYPE_WRITE || t == filesystem.EventType_EVENT_TYPE_CHMOD
}

// comes reports whether a directory came to be where it is by this change.
func (c change) comes() bool {
	return c.mask&unix.IN_ISDIR != 0 && c.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0
}

// goes reports whether a directory was moved away by this change.
func (c change) goes() bool {
	return c.mask&unix.IN_ISDIR != 0 && c.mask&unix.IN_MOVED_FROM != 0
}
