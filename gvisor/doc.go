// Package gvisor is the engine: it makes sandboxes of gVisor's sentries. It links
// none of gVisor; the sentries and their keeper are another binary, cube-sentry,
// which it speaks to through keeperapi, and the network is a third.
package gvisor
