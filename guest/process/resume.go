package process

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"cubesandbox/guest/agentapi"

	"connectrpc.com/connect"
)

// Headers of a client that takes output up again; see package agentapi.
const (
	outputFrom   = agentapi.OutputFrom
	outputWindow = agentapi.OutputWindow
	outputReader = agentapi.OutputReader
	outputLives  = agentapi.OutputLives
	outputEnd    = agentapi.OutputEnd
)

// invalid is the error for a header that says nothing that we know.
func invalid(header, want string) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s: %s", header, want))
}

// readingOf returns how a request wants to read. Its errors are Connect errors.
func readingOf(h http.Header) (how reading, err error) {
	from := h.Get(outputFrom)
	if from == "" {
		for _, name := range []string{outputWindow, outputReader, outputLives} {
			if h.Get(name) != "" {
				return how, invalid(name, "it is for requests with "+outputFrom)
			}
		}
		return how, nil
	}
	if how.resumes, how.tail = true, from == "tail"; !how.tail {
		if how.from, err = strconv.ParseInt(from, 10, 64); err != nil || how.from < 0 {
			return how, invalid(outputFrom, fmt.Sprintf("%.40q: want the offset of a byte, from 0 on, or tail", from))
		}
	}
	if window := h.Get(outputWindow); window != "" {
		if how.window, err = strconv.ParseInt(window, 10, 64); err != nil || how.window < 1 || how.window > maxOutput {
			return how, invalid(outputWindow, fmt.Sprintf("%.40q: want a number of bytes from 1 to %d", window, maxOutput))
		}
	}
	if how.name = h.Get(outputReader); !isName(how.name) {
		return how, invalid(outputReader, fmt.Sprintf("want a name of at most %d visible ASCII characters", maxName))
	}
	if how.lives, err = parseLives(h.Get(outputLives)); err != nil {
		return how, invalid(outputLives, "want what this header said in an answer")
	}
	return how, nil
}

// maxName bounds the name of a reader, in characters.
const maxName = 64

// isName reports whether a reader may have this name, which may be none.
func isName(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(s) <= maxName
}

// connectError says to a reader where it can go on, if it can.
func (e *beyondError) connectError() error {
	if e.stranger {
		err := connect.NewError(connect.CodeOutOfRange, errors.New("the sandbox was rolled back to before the process began, or has begun anew; the number is another's now"))
		err.Meta().Set(outputEnd, agentapi.OtherProcess)
		return err
	}
	text := "offset %d is beyond the end of the output, %d: the sandbox was rolled back"
	if e.other {
		text = "offset %d was read before a rollback; since then the output is another one from offset %d on"
	}
	err := connect.NewError(connect.CodeOutOfRange, fmt.Errorf(text, e.from, e.end))
	err.Meta().Set(outputEnd, strconv.FormatInt(e.end, 10))
	err.Meta().Set(outputLives, e.lives)
	return err
}

// meant reports whether a request for a process means this one, as far as it says.
func (o *output) meant(h http.Header) (bool, error) {
	lives, err := parseLives(h.Get(outputLives))
	if err != nil {
		return false, invalid(outputLives, "want what this header said in an answer")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, same := o.lineage.common(lives, o.end)
	return same, nil
}

// tellLives says in which lives of the sandbox the output that follows was written.
func (o *output) tellLives(h http.Header) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h.Set(outputLives, o.lineage.String())
}
