// Package campaign has the tests of "nothing is ever lost": every verb is struck at
// every one of its boundaries, by the end of the server and of every other process of
// ours, and everything must be whole afterwards, and nothing left.
package campaign
