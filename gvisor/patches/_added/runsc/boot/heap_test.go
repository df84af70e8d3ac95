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
	"runtime"
	rtdebug "runtime/debug"
	"testing"
)

var kept []byte

// allocate makes garbage, in pieces of 1 MiB, and returns how often it was collected.
func allocate(mib int) uint32 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range mib {
		kept = make([]byte, 1<<20)
	}
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

func TestGarbageOfASaveIsCollectedAfterIt(t *testing.T) {
	defer rtdebug.SetGCPercent(rtdebug.SetGCPercent(100))
	runtime.GC()
	again := collectAfter()
	if n := allocate(saveGarbage >> 21); n != 0 {
		t.Errorf("garbage was collected %d times in a save", n)
	}
	if n := allocate(2 * saveGarbage >> 20); n == 0 {
		t.Errorf("however much a save allocates, garbage is not collected")
	}
	again()
	if n := allocate(saveGarbage >> 20); n == 0 {
		t.Errorf("garbage is not collected after a save")
	}
	if got := rtdebug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("a limit of %d bytes stays", got)
	}
}

func TestASaveBeforeTheFirstCollectionChangesNothing(t *testing.T) {
	defer rtdebug.SetGCPercent(rtdebug.SetGCPercent(-1))
	defer rtdebug.SetMemoryLimit(rtdebug.SetMemoryLimit(32 << 20))
	collectAfter()()
	if got := rtdebug.SetMemoryLimit(-1); got != 32<<20 {
		t.Errorf("the limit has become %d bytes", got)
	}
	if got := rtdebug.SetGCPercent(-1); got >= 0 {
		t.Errorf("garbage is collected at %d %% from now on", got)
	}
}
