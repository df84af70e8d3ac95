package sentry

import (
	"slices"

	"gvisor.dev/gvisor/pkg/cpuid"
)

// cpuFeatures names what gVisor sees of this machine's processor, sorted. A kernel
// is restored only where all of it is there.
func cpuFeatures() []string {
	cpuid.Initialize()
	host := cpuid.HostFeatureSet()
	var names []string
	for _, f := range cpuid.AllFeatures() {
		if host.HasFeature(f) {
			names = append(names, f.String())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
