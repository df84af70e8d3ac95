//go:build race

package sqlite

// slower: the race detector watches every access to memory of what is SQLite in Go.
const slower = 30
