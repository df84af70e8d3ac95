// Package sqlite keeps the service's records in a SQLite database: one file, in
// write-ahead mode, with a driver in pure Go.
//
// A write that was acknowledged survives the end of every process (it is in the
// log, in the kernel's page cache). After a power cut the last moments may be
// missing, but what is there is consistent: synchronous=NORMAL.
//
// The file holds access tokens and environments, so only its owner may read it.
package sqlite
