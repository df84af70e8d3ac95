// Package contract has the test that the gVisor engine keeps the contract of
// cube.Engine, with real sandboxes: the suite of enginetest, every fault included.
package contract
