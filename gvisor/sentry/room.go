package sentry

import (
	"errors"
	"fmt"
	"strconv"
)

// layerSlack is what a sentry needs to write its layer as a tar above the content of
// the files, in bytes.
const layerSlack = 64 << 20

// makeRoom raises the life's limit of memory by what its writable layer takes on disk:
// no file with content everywhere is larger.
func (l *life) makeRoom() error {
	l.mu.Lock()
	f := l.filestore
	l.mu.Unlock()
	room := int64(layerSlack)
	if f != nil {
		room += min(max(allocated(f), 0), l.record().Limits.DiskMiB<<20)
	}
	return l.group.limitMemory(hostLimit(l.record().Limits) + room)
}

// takeRoom lowers a limit that was raised. A life that uses more keeps it.
func (l *life) takeRoom() error {
	usual := hostLimit(l.record().Limits)
	if l.group.memoryLimit() <= usual {
		return nil
	}
	return l.group.limitMemory(usual)
}

// memoryLimit is how much memory the group may have, in bytes.
func (g *group) memoryLimit() int64 {
	if g.h.limited {
		return number(g.v2dir(), "memory.max")
	}
	return number(g.v1dir("memory"), "memory.limit_in_bytes")
}

// limitMemory says how much memory the group may have, in bytes. A limit below what it
// has is refused.
func (g *group) limitMemory(bytes int64) error {
	text := strconv.FormatInt(bytes, 10)
	if g.h.limited {
		if used := g.memory(); used > bytes {
			return fmt.Errorf("%d MiB of memory are in use", used>>20) // the kernel would kill
		}
		return write(g.v2dir(), "memory.max", text)
	}
	dir := g.v1dir("memory")
	memory := func() error { return write(dir, "memory.limit_in_bytes", text) }
	both := func() error { return optional(write(dir, "memory.memsw.limit_in_bytes", text)) }
	// That of memory must never be above that of both.
	if bytes > g.memoryLimit() {
		return errors.Join(both(), memory())
	}
	return errors.Join(memory(), both())
}
