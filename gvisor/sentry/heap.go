package sentry

import (
	"math"
	"runtime"
	"runtime/debug"
)

// quietHeap is how much memory a sentry's Go runtime may have before its first
// garbage collection, in bytes. A boot and a restore allocate some 20 MiB, most of
// it for good: collecting meanwhile costs a fifth of their CPU time and gives
// back 1.4 MiB (docs/benchmarks.md).
const quietHeap = 32 << 20

// collectLater lets the heap grow to quietHeap, and collects as usual from then on.
func collectLater() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(quietHeap)
	type sentinel struct{ p *int }
	runtime.AddCleanup(&sentinel{new(int)}, func(int) {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(math.MaxInt64)
	}, 0)
}
