// Copyright 2026 The Cube Authors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package kernel

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// UnsavableFile is implemented by vfs.FileDescriptionImpls that cannot be saved
// in some of their states.
type UnsavableFile interface {
	// Unsavable returns why the file cannot be saved now, or "" if it can.
	Unsavable() string
}

// SaveRefusedError is the error of a save that is refused because of what an
// application has open.
type SaveRefusedError struct {
	// PID is the process's ID in its own PID namespace, as whoever looks for it
	// there sees it, and Name its name.
	PID  ThreadID
	Name string
	// FD is a file descriptor of the process, File the path of its file, and
	// Why what UnsavableFile.Unsavable says.
	FD        int32
	File, Why string
}

// Error implements error.Error.
func (e *SaveRefusedError) Error() string {
	return fmt.Sprintf("save refused: process %d (%q) has %.256q open as file descriptor %d: %s", e.PID, e.Name, e.File, e.FD, e.Why)
}

// checkSavable returns a SaveRefusedError if a task has a file open that cannot
// be saved. Of several it names that of the process with the lowest PID in the
// root PID namespace, and of its files that with the lowest descriptor.
//
// Preconditions: The kernel must be paused.
func (k *Kernel) checkSavable(ctx context.Context) error {
	k.tasks.mu.RLock()
	defer k.tasks.mu.RUnlock()
	var refused *SaveRefusedError
	var first *Task
	for table, t := range k.tasks.Root.fdTables() {
		if first != nil && k.tasks.Root.precedes(first, t) {
			continue
		}
		if r := k.unsavable(ctx, t, table); r != nil {
			refused, first = r, t
		}
	}
	if refused == nil {
		return nil
	}
	return refused
}

// fdTables returns the tables of all tasks, each with the first of its tasks.
//
// Preconditions: The kernel must be paused, and the TaskSet mutex must be locked.
func (ns *PIDNamespace) fdTables() map[*FDTable]*Task {
	tables := make(map[*FDTable]*Task)
	for t := range ns.tids {
		// We can skip locking Task.mu here since the kernel is paused.
		if t.fdTable == nil {
			continue // t is exiting
		}
		if other, ok := tables[t.fdTable]; !ok || ns.precedes(t, other) {
			tables[t.fdTable] = t
		}
	}
	return tables
}

// precedes orders tasks by PID, and those of one process by thread ID.
//
// Preconditions: The TaskSet mutex must be locked.
func (ns *PIDNamespace) precedes(a, b *Task) bool {
	if a.tg != b.tg {
		return ns.tgids[a.tg] < ns.tgids[b.tg]
	}
	return ns.tids[a] < ns.tids[b]
}

// unsavable returns the first file of t's table that cannot be saved, or nil.
//
// Preconditions: The kernel must be paused, and the TaskSet mutex must be locked.
func (k *Kernel) unsavable(ctx context.Context, t *Task, table *FDTable) *SaveRefusedError {
	var refused *SaveRefusedError
	table.ForEach(ctx, func(fd int32, file *vfs.FileDescription, _ FDFlags) bool {
		f, ok := file.Impl().(UnsavableFile)
		if !ok {
			return true
		}
		why := f.Unsavable()
		if why == "" {
			return true
		}
		refused = &SaveRefusedError{PID: t.tg.pidns.tgids[t.tg], Name: t.tg.leader.Name(), FD: fd, File: k.pathOf(ctx, t, file), Why: why}
		return false
	})
	return refused
}

// pathOf returns the path of file as t sees it. It does without
// vfs.RootFromContext, which locks k.extMu.
//
// Preconditions: The kernel must be paused.
func (k *Kernel) pathOf(ctx context.Context, t *Task, file *vfs.FileDescription) string {
	fsContext := t.fsContext.Load()
	if fsContext == nil {
		return "" // t is exiting
	}
	root := fsContext.RootDirectory()
	defer root.DecRef(ctx)
	path, err := k.vfs.PathnameWithDeleted(ctx, root, file.VirtualDentry())
	if err != nil {
		return ""
	}
	return path
}
