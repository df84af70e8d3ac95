// Package spawn is how the agent starts processes in the users' namespaces.
//
// The agent is alone in the sandbox's first PID namespace. It starts a child,
// init, in a PID and mount namespace of its own; init gives up every capability
// that users must not have, and then starts processes on the agent's behalf and
// reaps what ends. Init is needed because a process that the agent forks
// directly would, between fork and exec, be inside the users' PID namespace with
// the agent's memory and descriptors, where the users' root may trace it.
//
// Users' root can do with init what it likes: kill it, stop it, trace it. Init
// therefore has no more rights than a user's root, and the agent takes what init
// says for what a user says: bounded in size and time, never trusted.
//
// The two speak over a stream socketpair, in frames: length of the payload
// (uint32, little endian), kind, payload. A spawn frame carries the three
// standard descriptors of the new process.
package spawn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Frame kinds.
const (
	kindSpawn   = 1 // agent → init: Request, with three descriptors
	kindSignal  = 2 // agent → init: pid, signal
	kindReady   = 3 // init → agent: the namespaces are set up
	kindStarted = 4 // init → agent: pid, or why not
	kindExited  = 5 // init → agent: pid, wait status
)

const (
	headerSize = 5
	// maxRequest bounds a frame to init, in bytes: the kernel takes no more in
	// arguments and environment.
	maxRequest = 4 << 20
	// maxAnswer bounds a frame from init, in bytes.
	maxAnswer = 8 << 10
)

// Request describes a process to start.
type Request struct {
	// User is the name of the account to run as.
	User string
	Cmd  string
	Args []string
	// Env comes on top of PATH, HOME, USER and LOGNAME, as NAME=value.
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

// readFrame reads one frame whose payload is at most max bytes, after the header.
func readBody(r io.Reader, header []byte, max int) (kind byte, payload []byte, err error) {
	n := binary.LittleEndian.Uint32(header)
	if int64(n) > int64(max) {
		return 0, nil, fmt.Errorf("%w: %d bytes, at most %d", errForm, n, max)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	return header[4], payload, err
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

// reader takes values from a payload; after the first that is not there, all
// are zero and ok is false.
type reader struct {
	b  []byte
	ok bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.ok, r.b = false, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) string() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.ok, r.b = false, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) strings() []string {
	n := r.uvarint()
	if n > uint64(len(r.b)) { // each takes a byte at least
		r.ok, r.b = false, nil
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, r.string())
	}
	return list
}

func (q *Request) encode() []byte {
	b := appendString(nil, q.User)
	b = appendString(b, q.Cmd)
	b = appendStrings(b, q.Args)
	b = appendStrings(b, q.Env)
	b = appendString(b, q.Cwd)
	b = appendString(b, q.Cgroup)
	if q.Terminal {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeRequest(payload []byte) (q Request, err error) {
	r := reader{payload, true}
	q.User = r.string()
	q.Cmd = r.string()
	q.Args = r.strings()
	q.Env = r.strings()
	q.Cwd = r.string()
	q.Cgroup = r.string()
	q.Terminal = r.uvarint() == 1
	if !r.ok || len(r.b) != 0 {
		return q, errForm
	}
	return q, nil
}
