package main

import (
	"encoding/binary"
	"math/rand/v2"
	"unsafe"
)

// slotSize is how far functions are from each other: some cross into the next line of
// the cache, and each page has many.
const slotSize = 97

// writeCode writes functions that return numbers all over a region: mov eax, imm32; ret.
func writeCode(rg *region, r *rand.Rand) {
	for off := uintptr(0); off+6 <= rg.size; off += slotSize {
		writeSlot(rg, off, r.Uint32())
	}
}

func writeSlot(rg *region, off uintptr, number uint32) {
	code := at(rg.addr+off, 6)
	code[0], code[5] = 0xb8, 0xc3
	binary.LittleEndian.PutUint32(code[1:], number)
}

// runSlot calls one.
func runSlot(rg *region, off uintptr) uint32 {
	entry := rg.addr + off
	p := &entry
	f := *(*func() uint32)(unsafe.Pointer(&p))
	return f()
}

// codeRuns: programs can be written here.
const codeRuns = true
