package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
)

// port is where every program answers, on 127.0.0.1 inside.
const port = 8000

// state is what a program says of itself; see guest/work.py.
type state struct {
	Broken   []string `json:"broken"`
	Identity string   `json:"identity"`
	PID      int      `json:"pid"`
	Bytes    int64    `json:"bytes"`
	Rounds   rounds   `json:"rounds"`
	Marks    []mark   `json:"marks"`
}

// rounds is how many times each worker of a program went round.
type rounds map[string]int64

type mark struct {
	Name   string `json:"name"`
	Rounds rounds `json:"rounds"`
}

// errWrong says that a program is not what it was, or found something that is not.
var errWrong = errors.New("wrong")

// answerTime bounds an answer of a program: copies of it work beside it, on few
// processors.
const answerTime = 90 * time.Second

// ask sends the program in a sandbox a request, through the data plane.
func ask(ctx context.Context, id cube.SandboxID, path string) (a state, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.API.PortURL(id, port)+path, nil)
	if err != nil {
		return a, err
	}
	r.Close = true // the next life has another connection
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return a, fmt.Errorf("sandbox %s, %s: %s", id, path, res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return a, fmt.Errorf("sandbox %s, %s: %w", id, path, err)
	}
	if len(a.Broken) > 0 {
		return a, fmt.Errorf("sandbox %s: %w: %s", id, errWrong, strings.Join(a.Broken, "\n"))
	}
	return a, nil
}

// setMark gives the program a new mark: what it writes from now on is unlike what any
// copy of it writes.
func setMark(ctx context.Context, id cube.SandboxID, name string) (state, error) {
	a, err := ask(ctx, id, "mark?name="+url.QueryEscape(name))
	if err == nil && (len(a.Marks) == 0 || a.Marks[len(a.Marks)-1].Name != name) {
		err = fmt.Errorf("sandbox %s: %w: the mark %s was set, and the last is another: %v", id, errWrong, name, a.Marks)
	}
	return a, err
}

// follows reports in what a program is not one that went on from an earlier state: the same
// process with the same marks, none of whose workers went back.
func (a state) follows(before state) error {
	if a.Identity != before.Identity || a.PID != before.PID {
		return fmt.Errorf("%w: it is process %d, %s; it was %d, %s", errWrong, a.PID, a.Identity, before.PID, before.Identity)
	}
	same := func(x, y mark) bool { return x.Name == y.Name && x.Rounds.equal(y.Rounds) }
	if !slices.EqualFunc(a.Marks, before.Marks, same) {
		return fmt.Errorf("%w: its marks are %v; they were %v", errWrong, a.Marks, before.Marks)
	}
	if len(a.Rounds) != len(before.Rounds) || a.Bytes != before.Bytes {
		return fmt.Errorf("%w: it has workers %v and %d bytes; it had %v and %d", errWrong, a.Rounds, a.Bytes, before.Rounds, before.Bytes)
	}
	for name, n := range before.Rounds {
		if a.Rounds[name] < n {
			return fmt.Errorf("%w: its worker %s went back from round %d to %d", errWrong, name, n, a.Rounds[name])
		}
	}
	return nil
}

func (r rounds) equal(q rounds) bool {
	for name, n := range r {
		if q[name] != n {
			return false
		}
	}
	return len(r) == len(q)
}

// progress waits until every worker has gone round since.
func progress(ctx context.Context, id cube.SandboxID, since state) error {
	return lab.Until(answerTime, "every worker goes on", func() error {
		now, err := ask(ctx, id, "rounds")
		if err != nil {
			return err
		}
		for name, n := range since.Rounds {
			if now.Rounds[name] <= n {
				return fmt.Errorf("sandbox %s: %w: its worker %s stays at round %d", id, errWrong, name, n)
			}
		}
		return nil
	})
}
