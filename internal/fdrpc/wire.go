// Package fdrpc is request and response over a unix SOCK_SEQPACKET socket, with
// descriptors. One packet is one message: JSON, and up to 16 descriptors by
// SCM_RIGHTS, so a descriptor cannot come apart from the message that it belongs
// to. Requests run at the same time; answers come in any order. A server can
// push notes to its clients.
//
// The first request of a connection is "hello" with the protocol's name and
// version; a server of another version answers with an error that names both.
package fdrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	maxPacket = 128 << 10 // bytes of JSON in one message
	maxFiles  = 32
)

// Error is a failure that crosses the wire: a code for programs, a text for people.
type Error struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error with a code.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Code returns the code of an Error in err's chain, or "".
func Code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// message is what one packet holds. ID 0 is a note, pushed by the server.
type message struct {
	ID     uint64          `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
	Err    *Error          `json:"err,omitempty"`
}

// hello opens a connection.
type hello struct {
	Protocol string `json:"protocol"`
	Version  int    `json:"version"`
}

// send writes one message. The files stay the caller's. An *Error says that the
// message cannot be sent and the connection is as it was.
func send(c *net.UnixConn, m message, files []*os.File) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > maxPacket {
		return Errorf("invalid", "message %s of %d bytes is over the limit of %d", m.Method, len(b), maxPacket)
	}
	if len(files) > maxFiles {
		return Errorf("invalid", "message %s carries %d descriptors, limit %d", m.Method, len(files), maxFiles)
	}
	var werr error
	if err := hold(files, nil, func(fds []int) {
		var oob []byte
		if len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		_, _, werr = c.WriteMsgUnix(b, oob, nil)
	}); err != nil {
		return Errorf("invalid", "message %s: %v", m.Method, err)
	}
	return werr
}

// hold calls f with the numbers of the files, which stay theirs meanwhile, even
// when somebody closes one. Unlike Fd it leaves the blocking mode alone, which
// would reach everybody who shares the open file.
func hold(files []*os.File, fds []int, f func([]int)) error {
	if len(files) == 0 {
		f(fds)
		return nil
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	var rest error
	err = raw.Control(func(fd uintptr) { rest = hold(files[1:], append(fds, int(fd)), f) })
	return errors.Join(err, rest)
}

// receive reads one message. The files are the caller's to close.
func receive(c *net.UnixConn, buf []byte) (message, []*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return message{}, nil, err
	}
	files, err := parseFiles(oob[:oobn])
	if err != nil {
		return message{}, nil, err
	}
	if n == 0 {
		closeFiles(files)
		return message{}, nil, net.ErrClosed
	}
	var m message
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("message truncated")
	} else {
		err = json.Unmarshal(buf[:n], &m)
	}
	if err != nil {
		closeFiles(files)
		return message{}, nil, err
	}
	return m, files, nil
}

func parseFiles(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, c := range cmsgs {
		fds, err := unix.ParseUnixRights(&c)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// tune makes the socket's buffers hold some messages of the largest size.
func tune(c *net.UnixConn) {
	c.SetWriteBuffer(4 * maxPacket)
	c.SetReadBuffer(4 * maxPacket)
}
