// Package differential compares copies of sandboxes with one that never was saved and
// never came from an image.
//
// A program inside (guest) owns memory and files of all kinds and changes them on
// command; its state follows from the commands so far. A subject is saved, copied,
// rolled back, paused and brought back again and again, and subject and copies are
// given the same commands as a model, which was booted cold and only runs: whatever can
// be read, by every way that it can be read, must be the same. One of them is given
// other commands, and must stay apart.
//
// make test does every operation once, in six generations, and a few under load, while
// image files are taken out of the page cache, and with memory or files alone; make check
// does more of each, with larger files, and make soak goes on for an hour, or for
// CUBE_SOAK_TIME. CUBE_SEED has other cases taken; a failure prints its own, what was
// done before it, and the first byte that differs.
package differential
