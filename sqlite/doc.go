// Package sqlite keeps the service's records in a SQLite database: one file, in
// write-ahead mode, with a driver in pure Go.
//
// A write that was acknowledged survives the end of every process (it is in the log,
// in the kernel's page cache). What a power cut may cost: the log is not synced with
// each write (synchronous=NORMAL), so the last moments, some seconds as a rule, may be
// missing; what is there is consistent, and of one moment.
//
// One process has the file open, and in it one connection: to write a record takes
// some 30 µs, and lists are read at start only.
//
// The file holds access tokens and environments, so only its owner may read it.
package sqlite
