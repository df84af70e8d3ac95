package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	cube "cubesandbox"
	"cubesandbox/internal/local"
)

// Errors of the command line itself.
var (
	// errUsage: the command cannot be right, whatever the state.
	errUsage = errors.New("usage")
	// errCheck: a check that was asked for has failed; its report is on stdout.
	errCheck = errors.New("the check failed")
)

// statuses is the one table of exit statuses. The first row whose error matches
// an error decides its status and its advice.
var statuses = []struct {
	err    error
	status int
	means  string
	advice string
}{
	{nil, 0, "done", ""},
	{nil, 1, "failed for a reason without a status of its own", ""},
	{errUsage, 2, "the command is wrong", "see `cube help`"},
	{cube.ErrInvalid, 2, "the command is wrong", "correct the value that is named"},
	{errCheck, 3, "a probe did not pass", "the failed checks are in the report; --json has all values"},
	{cube.ErrNotFound, 4, "there is no such thing", "`cube template ls` lists templates; `cube template build base` makes one"},
	{cube.ErrConflict, 5, "it is in use, or in another state", "wait for the other verb to end, then try again"},
	{cube.ErrExists, 5, "it is there already", "choose another name, or remove it first"},
	{cube.ErrDead, 5, "the sandbox has ended", "its death says why; create another"},
	{cube.ErrNoCapacity, 6, "not enough memory", "end sandboxes (`cube down` ends all), or ask for fewer"},
	{cube.ErrNoSpace, 6, "not enough disk", "free space in the state directory, or give another with --state-dir"},
	{local.ErrNotRoot, 7, "root is needed", "run it as root: sudo cube …"},
	{cube.ErrUnavailable, 7, "the keeper or the network process cannot be reached", "look at keeper.log and network.log in the run directory; `cube down` and try again"},
	{cube.ErrCorrupt, 8, "an image is not what was saved", "delete it and use another; `cube template build NAME --fresh` makes a template anew"},
	{cube.ErrIncompatible, 8, "an image of another engine version", "`cube template build NAME` makes one for this version"},
	{context.Canceled, 130, "interrupted", ""},
}

// statusOf returns the exit status for an error, and what to do about it.
func statusOf(err error) (status int, advice string) {
	if err == nil {
		return 0, ""
	}
	for _, s := range statuses {
		if s.err != nil && errors.Is(err, s.err) {
			return s.status, s.advice
		}
	}
	return 1, ""
}

// statusTable is the text of `cube help exit-status`.
func statusTable() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "status\tmeans\twhat to do")
	for _, s := range statuses {
		fmt.Fprintf(t, "%d\t%s\t%s\n", s.status, s.means, s.advice)
	}
	t.Flush()
	return b.String()
}

// failure is how an error looks with --json.
type failure struct {
	Error  string `json:"error"`
	Status int    `json:"status"`
	Advice string `json:"advice,omitempty"`
}

// report writes an error to stderr: what and where, then what to do.
func report(w io.Writer, err error, asJSON bool) int {
	status, advice := statusOf(err)
	switch {
	case status == 0:
	case asJSON:
		writeJSON(w, failure{err.Error(), status, advice})
	default:
		fmt.Fprintf(w, "cube: %v\n", err)
		if advice != "" {
			fmt.Fprintf(w, "      %s\n", advice)
		}
	}
	return status
}
