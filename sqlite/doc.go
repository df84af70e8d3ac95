// Package sqlite keeps the service's records in a SQLite database: one file, in
// write-ahead mode, with a driver in pure Go.
//
// A batch that was acknowledged survives the end of every process (it is in the log,
// in the kernel's page cache). What a power cut may cost: the log is not synced with
// each write (synchronous=NORMAL), so what came after the last Sync may be missing;
// what is there is consistent, and of one moment.
//
// Sync does, when it is asked for, what synchronous=FULL does at each commit: it syncs
// the log. That is enough: what is in the log no more is in the database, which SQLite
// syncs before it starts a log anew
// (https://www.sqlite.org/pragma.html#pragma_synchronous). It is done with a descriptor
// of our own, so that neither SQLite's lock on writes nor the connection waits for the
// disk, and those who wait share one sync. Other ways were measured, each after one
// write to a virtual disk: this one takes 0.15 ms, an empty transaction with
// synchronous=FULL as much, but writes wait for it, and a checkpoint twice as much, with
// the next write slower by half. On a real disk the sync itself decides.
//
// One process has the file open, and in it one connection, from Open to Close: a
// record takes some 50 µs to write, and lists are read at start only. The connection
// must stay, for the last to close removes the log: contexts end the wait for it, and
// nothing that has begun.
//
// The file holds access tokens and environments, so only its owner may read it.
package sqlite
