//go:build cube_patched

package sentry

// What needs gVisor with gvisor/patches is in this file; stock.go has what stands for it
// without them.

// Patched says whether this is built of gVisor with gvisor/patches.
const Patched = true
