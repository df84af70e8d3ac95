// Package campaign has the tests of "nothing is ever lost": every verb is struck at
// every one of its boundaries, by the end of the server and of every other process of
// ours, and everything must be whole afterwards, and nothing left.
//
// make test takes a sample that is always the same, make check all boundaries, make
// soak also pairs of them. Variables choose other cases: CUBE_SEED another sample,
// CUBE_VERB the verbs whose names fit a regular expression, CUBE_SOAK_TIME how long the
// soak goes on. The tables of make check and make soak are kept in .cache/results.
package campaign
