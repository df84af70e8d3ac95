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
	// PID is the process's ID in its own PID namespace, and Name its name.
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
// be saved. Of several it names that of the lowest PID.
//
// Preconditions: The kernel must be paused.
func (k *Kernel) checkSavable(ctx context.Context) error {
	var refused *SaveRefusedError
	seen := make(map[*FDTable]struct{})
	k.tasks.mu.RLock()
	defer k.tasks.mu.RUnlock()
	for t := range k.tasks.Root.tids {
		// We can skip locking Task.mu here since the kernel is paused.
		if _, ok := seen[t.fdTable]; ok || t.fdTable == nil {
			continue
		}
		seen[t.fdTable] = struct{}{}
		pid := t.tg.pidns.tgids[t.tg]
		t.fdTable.ForEach(ctx, func(fd int32, file *vfs.FileDescription, _ FDFlags) bool {
			f, ok := file.Impl().(UnsavableFile)
			if !ok {
				return true
			}
			why := f.Unsavable()
			if why != "" && (refused == nil || pid < refused.PID) {
				refused = &SaveRefusedError{PID: pid, Name: t.tg.leader.Name(), FD: fd, File: k.pathOf(ctx, t, file), Why: why}
			}
			return why == ""
		})
	}
	if refused == nil {
		return nil
	}
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
