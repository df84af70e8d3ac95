//go:build !amd64

package main

import "math/rand/v2"

const (
	slotSize = 97
	// codeRuns: here code that was written must be made visible first by instructions
	// that cannot be said in Go, so it is data.
	codeRuns = false
)

func writeCode(rg *region, r *rand.Rand) { fill(rg.addr, rg.size, r.Uint64()) }

func writeSlot(rg *region, off uintptr, number uint32) { fill(rg.addr+off, 6, uint64(number)) }

func runSlot(*region, uintptr) uint32 { return 0 }
