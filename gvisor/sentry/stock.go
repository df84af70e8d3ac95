//go:build !cube_patched

package sentry

// Patched says whether this is built of gVisor with gvisor/patches.
const Patched = false
