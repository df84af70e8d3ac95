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
	"testing"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// savable and unsavable are files, which can be saved or not.
type savable struct {
	vfs.FileDescriptionDefaultImpl
	vfs.DentryMetadataFileDescriptionImpl
	vfs.NoLockFD
}

func (*savable) Release(context.Context) {}

type unsavable struct{ savable }

func (*unsavable) Unsavable() string { return "so that it is not" }

// process is one for a test: with one thread, and a table that others may have too.
type process struct {
	root, own ThreadID // its IDs; own is 0 where it is in the root PID namespace
	name      string
	table     string
}

// TestTheFileThatCannotBeSavedIsThatOfTheLowestProcess: however the tasks come, whichever PID
// namespace they are in, and whoever else has the table.
func TestTheFileThatCannotBeSavedIsThatOfTheLowestProcess(t *testing.T) {
	for name, c := range map[string]struct {
		processes []process
		bad       map[string][]int32 // file descriptors of tables, of files that cannot be saved
		want      SaveRefusedError   // with no PID: none
	}{
		"none":             {[]process{{1, 0, "init", "a"}}, nil, SaveRefusedError{}},
		"of several files": {[]process{{1, 0, "init", "a"}}, map[string][]int32{"a": {9, 4, 7}}, SaveRefusedError{PID: 1, Name: "init", FD: 4}},
		"of several processes": {
			[]process{{9, 0, "late", "a"}, {3, 0, "early", "b"}, {2, 0, "well", "c"}, {5, 0, "later", "d"}},
			map[string][]int32{"a": {3}, "b": {5}, "d": {3}}, SaveRefusedError{PID: 3, Name: "early", FD: 5},
		},
		"of another PID namespace": {
			[]process{{9, 1, "late", "a"}, {3, 0, "early", "b"}},
			map[string][]int32{"a": {3}, "b": {5}}, SaveRefusedError{PID: 3, Name: "early", FD: 5},
		},
		"named as it names itself": {
			[]process{{9, 2, "inner", "a"}, {3, 0, "well", "b"}, {12, 1, "later", "c"}},
			map[string][]int32{"a": {3}, "c": {3}}, SaveRefusedError{PID: 2, Name: "inner", FD: 3},
		},
		"of a table that several have": {
			[]process{{9, 0, "late", "a"}, {3, 0, "early", "a"}, {5, 0, "between", "b"}},
			map[string][]int32{"a": {3}, "b": {3}}, SaveRefusedError{PID: 3, Name: "early", FD: 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kernelWith(t, c.processes, c.bad)
			for range 50 { // maps are read in another order each time
				err := k.checkSavable(context.Background())
				if c.want.PID == 0 {
					if err != nil {
						t.Fatal(err)
					}
					continue
				}
				got, ok := err.(*SaveRefusedError)
				if !ok || got.PID != c.want.PID || got.Name != c.want.Name || got.FD != c.want.FD {
					t.Fatalf("got %v, want %v", err, &c.want)
				}
			}
		})
	}
}

// kernelWith is a paused kernel with processes, of whose tables each has a file that can
// be saved.
func kernelWith(t *testing.T, processes []process, bad map[string][]int32) *Kernel {
	t.Helper()
	ctx := context.Background()
	k := &Kernel{tasks: &TaskSet{}}
	k.MaxFDLimit.Store(MaxFdLimit)
	if err := k.vfs.Init(ctx); err != nil {
		t.Fatal(err)
	}
	k.tasks.Root = newPIDNamespace(k.tasks, nil, nil)
	inner := newPIDNamespace(k.tasks, k.tasks.Root, nil)
	tables := map[string]*FDTable{}
	open := func(table *FDTable, at int32, impl vfs.FileDescriptionImpl) {
		file := new(vfs.FileDescription)
		vd := k.vfs.NewAnonVirtualDentry("file")
		if err := file.Init(impl, 0, nil, vd.Mount(), vd.Dentry(), &vfs.FileDescriptionOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := table.NewFDAt(ctx, at, file, FDFlags{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range processes {
		table := tables[p.table]
		if table == nil {
			table = k.NewFDTable()
			tables[p.table] = table
			open(table, 0, &savable{})
			for _, fd := range bad[p.table] {
				open(table, fd, &unsavable{})
			}
		}
		task := &Task{fdTable: table}
		task.image.Name = p.name
		task.tg = &ThreadGroup{}
		task.tg.leader, task.tg.pidns = task, k.tasks.Root
		k.tasks.Root.tids[task], k.tasks.Root.tgids[task.tg] = p.root, p.root
		if p.own != 0 {
			task.tg.pidns = inner
			inner.tids[task], inner.tgids[task.tg] = p.own, p.own
		}
	}
	return k
}
