package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	cube "cubesandbox"
)

// workingPort is where every program answers, on 127.0.0.1 inside.
const workingPort = 8000

// Working is what a program at work says of itself; see e2e/programs/guest/work.py.
type Working struct {
	Broken   []string `json:"broken"`
	Identity string   `json:"identity"`
	PID      int      `json:"pid"`
	Bytes    int64    `json:"bytes"`
	Rounds   Rounds   `json:"rounds"`
	Marks    []Mark   `json:"marks"`
	// Job is the process that works for it just now, 0 for none; Ended are the last ones
	// that ended well. Most programs have none.
	Job   int   `json:"job"`
	Ended []int `json:"ended"`
}

// Rounds is how many times each worker of a program went round.
type Rounds map[string]int64

// Mark is one that was set, and the rounds at that moment.
type Mark struct {
	Name   string `json:"name"`
	Rounds Rounds `json:"rounds"`
}

// ErrWrong says that a program is not what it was, or found something that is not.
var ErrWrong = errors.New("wrong")

// workingTime bounds an answer of a program: copies of it work beside it, on few
// processors.
const workingTime = 90 * time.Second

// Ask sends the program in a sandbox a request, through the data plane.
func (s *Server) Ask(ctx context.Context, id cube.SandboxID, path string) (a Working, err error) {
	ctx, cancel := context.WithTimeout(ctx, workingTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.API.PortURL(id, workingPort)+path, nil)
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
		said, err := io.ReadAll(io.LimitReader(res.Body, 500))
		return a, errors.Join(fmt.Errorf("sandbox %s, %s: %s: %s", id, path, res.Status, said), err)
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return a, fmt.Errorf("sandbox %s, %s: %w", id, path, err)
	}
	if len(a.Broken) > 0 {
		return a, fmt.Errorf("sandbox %s: %w: %s", id, ErrWrong, strings.Join(a.Broken, "\n"))
	}
	return a, nil
}

// SetMark gives the program a new mark: what it writes from now on is unlike what any
// copy of it writes.
func (s *Server) SetMark(ctx context.Context, id cube.SandboxID, name string) (Working, error) {
	a, err := s.Ask(ctx, id, "mark?name="+url.QueryEscape(name))
	if err == nil && (len(a.Marks) == 0 || a.Marks[len(a.Marks)-1].Name != name) {
		err = fmt.Errorf("sandbox %s: %w: the mark %s was set, and the last is another: %v", id, ErrWrong, name, a.Marks)
	}
	return a, err
}

// Follows reports in what a program is not one that went on from an earlier state: the same
// process with the same marks, none of whose workers went back.
func (a Working) Follows(before Working) error {
	if a.Identity != before.Identity || a.PID != before.PID {
		return fmt.Errorf("%w: it is process %d, %s; it was %d, %s", ErrWrong, a.PID, a.Identity, before.PID, before.Identity)
	}
	same := func(x, y Mark) bool { return x.Name == y.Name && x.Rounds.equal(y.Rounds) }
	if !slices.EqualFunc(a.Marks, before.Marks, same) {
		return fmt.Errorf("%w: its marks are %v; they were %v", ErrWrong, a.Marks, before.Marks)
	}
	if len(a.Rounds) != len(before.Rounds) || a.Bytes != before.Bytes {
		return fmt.Errorf("%w: it has workers %v and %d bytes; it had %v and %d", ErrWrong, a.Rounds, a.Bytes, before.Rounds, before.Bytes)
	}
	for name, n := range before.Rounds {
		if a.Rounds[name] < n {
			return fmt.Errorf("%w: its worker %s went back from round %d to %d", ErrWrong, name, n, a.Rounds[name])
		}
	}
	return nil
}

func (r Rounds) equal(q Rounds) bool {
	for name, n := range r {
		if q[name] != n {
			return false
		}
	}
	return len(r) == len(q)
}

// Progress waits until every worker has gone round since.
func (s *Server) Progress(ctx context.Context, id cube.SandboxID, since Working) error {
	return Until(workingTime, "every worker goes on", func() error {
		now, err := s.Ask(ctx, id, "rounds")
		if err != nil {
			return err
		}
		for name, n := range since.Rounds {
			if now.Rounds[name] <= n {
				return fmt.Errorf("sandbox %s: %w: its worker %s stays at round %d", id, ErrWrong, name, n)
			}
		}
		return nil
	})
}
