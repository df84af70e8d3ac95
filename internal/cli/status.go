package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"text/tabwriter"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/internal/local"
)

// Errors of the command line itself.
var (
	// errUsage: the command cannot be right, whatever the state.
	errUsage = errors.New("usage")
	// errCheck: a check that was asked for has failed; its report is on stdout.
	errCheck = errors.New("the check failed")
	// errPaused: a program is to run in a sandbox that does not.
	errPaused = errors.New("no program can run in it")
)

// statusRow says what an error means to a shell, and what to do about it.
type statusRow struct {
	err    error
	status int
	means  string
	advice string
}

// statuses is the one table of exit statuses. The first row whose error matches
// an error decides its status and its advice.
var statuses = []statusRow{
	{nil, 0, "done", ""},
	{nil, 1, "failed for a reason without a status of its own", ""},
	{errUsage, 2, "the command is wrong", "see `cube help`"},
	{cube.ErrInvalid, 2, "the command is wrong", "correct the value that is named"},
	{errCheck, 3, "a check did not pass (probe, doctor)", "what failed is in the report; --json has all values"},
	{client.ErrUnauthorized, 9, "the server does not accept the key", "run it as the server's user, or set CUBE_API_KEY; `cube env` prints the key"},
	{client.ErrUnreachable, 7, "no server answers", "start it with: cube serve -d (--api-url and $CUBE_API_URL say where it is)"},
	{cube.ErrCorrupt, 8, "an image is not what was saved", "delete it and use another; `cube template build NAME --fresh` makes a template anew, `cube sandbox resume --files ID` boots a paused sandbox from its files"},
	{cube.ErrNotFound, 4, "there is no such thing", "`cube sandbox ls`, `cube snapshot ls` and `cube template ls` list what there is"},
	{errPaused, 5, "the sandbox is paused", "bring it back first: cube sandbox resume ID"},
	{cube.ErrConflict, 5, "it is in use, or in another state", "`cube sandbox ls` shows states; wait for what is under way to end, then try again"},
	{cube.ErrKeyReused, 5, "the idempotency key is used for another request", "give a new one with --idempotency-key"},
	{cube.ErrExists, 5, "it is there already", "choose another name, or remove it first"},
	{cube.ErrDead, 5, "the sandbox has ended", "its death says why; create another"},
	{cube.ErrNoCapacity, 6, "not enough memory", "end or pause sandboxes (`cube sandbox ls` lists them), or ask for fewer"},
	{cube.ErrNoSpace, 6, "not enough disk", "free space in the state directory, or give another with --state-dir"},
	{local.ErrNotRoot, 7, "root is needed", "run it as root: sudo cube …"},
	{fs.ErrPermission, 7, "a file is not to be read by you", "run it as the server's user: sudo cube …"},
	{client.ErrStopped, 7, "the server was stopped while a program ran", "start it again with: cube serve -d; an SDK connects to the process by its number (E2B's: commands.connect)"},
	{cube.ErrUnavailable, 7, "a process of ours cannot be reached, or did not answer in time", "try again in a moment; if it stays so, serve.log, keeper.log and network.log in the run directory say why"},
	{cube.ErrIncompatible, 8, "an image that this machine or engine cannot restore", "`cube template build NAME` makes a template for it, `cube sandbox resume --files ID` boots a paused sandbox from its files"},
	{client.ErrTimeout, statusTimeout, "sandbox exec: --timeout was over", ""},
	{nil, statusOurs, "sandbox exec and shell: cube itself failed; other statuses of theirs are the program's", ""},
	{context.Canceled, 130, "interrupted", ""},
}

// Statuses of commands that run a program, whose own status is ours otherwise.
const (
	statusTimeout = 124
	statusOurs    = 125
)

// statusOf returns the exit status for an error, and what to do about it.
func statusOf(err error) (status int, advice string) {
	if err == nil {
		return 0, ""
	}
	var program programStatus
	if errors.As(err, &program) {
		return int(program), ""
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
	byStatus := slices.Clone(statuses)
	slices.SortStableFunc(byStatus, func(a, b statusRow) int { return cmp.Compare(a.status, b.status) })
	for _, s := range byStatus {
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

// report writes an error to stderr: what and where, then what to do. inside says that
// the command runs a program in a sandbox, so that most statuses are the program's.
func report(w io.Writer, err error, asJSON, inside bool) int {
	status, advice := statusOf(err)
	var program programStatus
	if status == 0 || errors.As(err, &program) {
		return status
	}
	if inside && status != statusTimeout && status != 130 {
		status = statusOurs
	}
	if asJSON {
		writeJSON(w, failure{err.Error(), status, advice})
		return status
	}
	fmt.Fprintf(w, "cube: %s\n", plain(err.Error()))
	if advice != "" {
		fmt.Fprintf(w, "      %s\n", advice)
	}
	return status
}
