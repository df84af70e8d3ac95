// Package house holds the rules of this repository as tests: what a reviewer would
// say each time is said here once. A rule that turns out wrong is changed here, in
// the open, and not worked around.
package house
