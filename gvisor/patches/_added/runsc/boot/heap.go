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

package boot

import (
	"math"
	rtdebug "runtime/debug"
	"runtime/metrics"
	"time"
)

// trimDelay is how long after a restore the heap is trimmed: what the sandbox does first
// goes before.
const trimDelay = time.Second

// trimHeap gives back, a little later, what loading has left on the heap. The garbage
// collector would not run again before as much was allocated once more, which may be never.
func trimHeap() { time.AfterFunc(trimDelay, rtdebug.FreeOSMemory) }

// saveGarbage is how much the heap may grow in a save before it is collected all the same,
// in bytes. What a save allocates is a multiple of the kernel's state, which users can make
// large.
const saveGarbage = 64 << 20

// collectAfter has garbage be collected only after what it returns is called: while the
// kernel stands still its processors are for what ends that.
func collectAfter() (again func()) {
	percent := rtdebug.SetGCPercent(-1)
	if percent < 0 { // it is not collected yet
		return func() {}
	}
	heap := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(heap)
	held := heap[0].Value.Uint64() - heap[1].Value.Uint64()
	limit := rtdebug.SetMemoryLimit(int64(min(held+saveGarbage, math.MaxInt64)))
	return func() {
		rtdebug.SetMemoryLimit(limit)
		rtdebug.SetGCPercent(percent)
	}
}
