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

package pgalloc

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/safecopy"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sync"
)

// Pages of an image that cannot be read
//
// The host may fail to read an Image, or somebody may have truncated it. Then bytes are
// lost that were the sandbox's, and nothing that it does from here on could be relied on: it
// ends, and says why. This is noticed wherever such a page is read: by the sentry itself,
// whose safecopy returns a BusError; by the host's kernel on its behalf, which returns EFAULT;
// and by the application, which gets a SIGBUS.

// mapped are the mappings of all Images.
var mapped struct {
	mu     sync.Mutex // for writing
	images atomic.Pointer[[]*Image]
}

// addMapped has failures to read im be noticed.
func addMapped(im *Image) {
	mapped.mu.Lock()
	defer mapped.mu.Unlock()
	var all []*Image
	if old := mapped.images.Load(); old != nil {
		all = append(all, *old...)
	} else {
		safecopy.SetOnBusError(checkMapped)
	}
	all = append(all, im)
	mapped.images.Store(&all)
}

// removeMapped ends what addMapped began.
func removeMapped(im *Image) {
	mapped.mu.Lock()
	defer mapped.mu.Unlock()
	var all []*Image
	for _, other := range *mapped.images.Load() {
		if other != im {
			all = append(all, other)
		}
	}
	mapped.images.Store(&all)
}

// checkMapped ends the sandbox if what could not be read at addr is an Image.
func checkMapped(addr uintptr) {
	for _, im := range *mapped.images.Load() {
		if start := uintptr(unsafe.Pointer(unsafe.SliceData(im.data))); addr-start < uintptr(len(im.data)) {
			im.fail(uint64(addr - start))
		}
	}
}

// fail ends the sandbox because im cannot be read at off.
func (im *Image) fail(off uint64) {
	panic(fmt.Sprintf("image %q cannot be read at %#x: a page of this sandbox is lost", im.id, off))
}

// CheckImaged ends the sandbox if the imaged page at off in f, which the application could
// not read, cannot be read. It does nothing if off is of another page.
func (f *MemoryFile) CheckImaged(off uint64) {
	off = hostarch.PageRoundDown(off)
	f.imaged.mu.Lock()
	var r imagedRange
	f.imaged.set.visit(memmap.FileRange{Start: off, End: off + hostarch.PageSize}, func(at imagedRange) error {
		r = at
		return nil
	})
	f.imaged.mu.Unlock()
	if r.image == nil || r.image.data == nil {
		return
	}
	var page [hostarch.PageSize]byte
	safecopy.CopyIn(page[:], unsafe.Pointer(&r.image.data[r.off])) // see checkMapped
}
