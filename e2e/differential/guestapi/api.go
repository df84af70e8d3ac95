// Package guestapi is what the differential test and its program inside a sandbox say
// to each other: one JSON object each way by HTTP POST, one after the other.
package guestapi

// Port is where the program listens, on 127.0.0.1 inside.
const Port = 8000

// What is asked for with Request.Do.
const (
	// Begin makes all state, once (Mode, Seed, Large).
	Begin = "begin"
	// Operations lists what the program can do in its mode (→ Answer.Operations).
	Operations = "operations"
	// Operate does one operation (Operation, Seed, LeaveOut → Answer.Result).
	Operate = "operate"
	// Digest reads state (Deep, Ways → Answer.Parts, Answer.Disagree).
	Digest = "digest"
	// Chunks has the digest of each ChunkSize bytes of one part (Part → Answer.Sums).
	Chunks = "chunks"
	// Bytes returns up to ChunkSize bytes of one part (Part, Offset → Answer.Bytes).
	Bytes = "bytes"
	// Flip changes one byte of one part, behind every operation's back (Part, Offset).
	Flip = "flip"
	// Load starts threads that write checksummed blocks without pause.
	Load = "load"
	// Check reads all these blocks (→ Answer.Written; an error for one that is torn).
	Check = "check"
)

// Mode says which state the program has.
type Mode string

// The modes.
const (
	MemoryOnly Mode = "memory only"
	FilesOnly  Mode = "files only"
	Both       Mode = "both"
)

// ChunkSize is the length of a chunk of a part, in bytes.
const ChunkSize = 64 << 10

// Request is one command. What an operation does is decided by its name, its seed and
// the commands before it, by nothing else.
type Request struct {
	Do        string
	Mode      Mode   `json:",omitempty"`
	Operation string `json:",omitempty"`
	Seed      uint64 `json:",omitempty"`
	// Large is the length of the two large files, in bytes.
	Large int64 `json:",omitempty"`
	// LeaveOut leaves out the n-th store into memory or files of an operation, from 1: so a
	// test shows that it would see a write that is lost. 0: none.
	LeaveOut int `json:",omitempty"`
	// Deep reads all parts, those too that are left aside because it takes long.
	Deep bool `json:",omitempty"`
	// Ways reads each part by every way that it can be read.
	Ways   bool   `json:",omitempty"`
	Part   string `json:",omitempty"`
	Offset int64  `json:",omitempty"`
}

// Answer is what came of it.
type Answer struct {
	// Error is empty after success.
	Error      string   `json:",omitempty"`
	Operations []string `json:",omitempty"`
	// Result is what the operation saw, the same wherever it is done in the same state.
	Result string `json:",omitempty"`
	Parts  []Part `json:",omitempty"`
	// Disagree names the ways of reading that do not give what the first one does.
	Disagree []string `json:",omitempty"`
	Sums     []string `json:",omitempty"`
	Bytes    []byte   `json:",omitempty"`
	// Written is how many blocks the threads of Load have written so far.
	Written int64 `json:",omitempty"`
}

// Part is a piece of state: a region of the program or of one of its workers, a file,
// or a tree of names.
type Part struct {
	Name string
	Size int64  // bytes
	Sum  string // SHA-256, in hex
}
