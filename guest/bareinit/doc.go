// Package bareinit is process 1 of the users' namespaces: it starts processes on
// the agent's behalf and reaps what ends. See package spawn for why it exists and
// for its other side.
//
// It runs without the Go runtime. The program's entry point is ours (entry_*.s):
// when the program is called as "init" it never initializes the runtime, and has
// one thread, no heap and a few pages of memory. With the runtime each start of a
// process took about two milliseconds more, for signal handlers to reset and for
// the runtime's monitor thread, which gVisor wakes thousands of times a second;
// and its heap and threads were in every image.
//
// The rules for code in here follow from that: no allocation, no goroutine, no
// defer, no map, no interface, no panic that is meant to be survived. Buffers are
// package variables. An index out of range ends the process, which the agent
// notices and repairs. What runs in the child between clone and exec must be
// nosplit and norace too, for it has a stack of its own.
//
// The program must be linked with -ldflags "-E cube_guest_entry"; Linked says
// whether it was.
package bareinit
