//go:build !race

package sqlite

// slower is what the race detector does to figures.
const slower = 1
