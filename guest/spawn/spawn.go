// Package spawn is how the agent starts processes in the users' namespaces.
//
// The agent is alone in the sandbox's first PID namespace. It starts a child,
// init, in a PID and mount namespace of its own; init (package bareinit) gives up
// every capability that users must not have, and then starts processes on the
// agent's behalf and reaps what ends. Init is needed because a process that the
// agent forks directly would, between fork and exec, be inside the users' PID
// namespace with the agent's memory and descriptors, where the users' root may
// trace it.
//
// Users' root can do with init what it likes: kill it, stop it, trace it. Init
// therefore has no more rights than a user's root, and the agent takes what init
// says for what a user says: bounded in size and time, never trusted.
package spawn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"cubesandbox/guest/bareinit"
)

// Request describes a process to start.
type Request struct {
	// User is the name of the account to run as.
	User string
	Cmd  string
	Args []string
	// Env comes on top of PATH, HOME, USER, LOGNAME and E2B_SANDBOX, as NAME=value.
	Env []string
	// Cwd is the working directory; empty means the user's home, relative means
	// below it.
	Cwd string
	// Cgroup is a directory below CgroupRoot to start in; empty means none.
	Cgroup string
	// Terminal makes descriptor 0 the controlling terminal.
	Terminal bool
}

// Failure says which part of a request was wrong.
type Failure uint8

// What can be wrong with a request.
const (
	FailureOther   Failure = iota + 1 // the kernel refused
	FailureUser                       // no such user
	FailureCwd                        // no such working directory
	FailureCommand                    // no such program, or it cannot be executed
	FailureLimit                      // too many processes
)

// Error is why a process could not be started.
type Error struct {
	Failure Failure
	Text    string
}

func (e *Error) Error() string { return e.Text }

// ErrInitDied means that init ended, and with it all processes.
var ErrInitDied = errors.New("the sandbox's init died; a new one is being started, try again")

var errForm = errors.New("malformed frame")

func appendFrame(b []byte, kind byte, payload []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(append(b, kind), payload...)
}

// readFrame reads one of init's frames. None has more than three words.
func readFrame(r io.Reader) (kind byte, words [3]uint32, err error) {
	var b [bareinit.HeaderSize + bareinit.MaxAnswer]byte
	if _, err = io.ReadFull(r, b[:bareinit.HeaderSize]); err != nil {
		return 0, words, err
	}
	n := binary.LittleEndian.Uint32(b[:])
	if n > 12 || n%4 != 0 {
		return 0, words, fmt.Errorf("%w: %d bytes", errForm, n)
	}
	body := b[bareinit.HeaderSize : bareinit.HeaderSize+n]
	_, err = io.ReadFull(r, body)
	for i := range n / 4 {
		words[i] = binary.LittleEndian.Uint32(body[i*4:])
	}
	return b[4], words, err
}
