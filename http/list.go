package http

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	cube "cubesandbox"
	"cubesandbox/http/openapi"
)

// pageLimit is how long a page is, and may be.
const pageLimit = 100

// list is GET /sandboxes: all of them; E2B: those that run.
func (a *API) list(c *call) (answer, error) {
	var q cube.SandboxQuery
	var err error
	if q.Metadata, err = metadata(c, c.r.URL.Query().Get("metadata")); err != nil {
		return answer{}, err
	}
	if c.e2b() {
		q.Phases = []cube.Phase{cube.PhaseRunning}
	}
	return a.answerList(c, q)
}

// listPage is GET /v2/sandboxes.
func (a *API) listPage(c *call) (answer, error) {
	v := c.r.URL.Query()
	q := cube.SandboxQuery{Cursor: v.Get("nextToken"), Template: v.Get("template")}
	var err error
	if q.Metadata, err = metadata(c, v.Get("metadata")); err != nil {
		return answer{}, err
	}
	if q.Phases, err = phases(v["state"]); err != nil {
		return answer{}, err
	}
	if q.Limit, err = limit(v.Get("limit")); err != nil {
		return answer{}, err
	}
	switch o := v.Get("order"); o {
	case "asc", "desc", "":
		q.Ascending = o == "asc"
	default:
		return answer{}, invalid("order %.20q: want asc or desc", o)
	}
	if s := v.Get("startedAfter"); s != "" {
		if q.StartedAfter, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return answer{}, invalid("startedAfter %.64q: want a time as in 2026-01-02T15:04:05Z", s)
		}
		q.StartedAfter = q.StartedAfter.Truncate(time.Microsecond)
	}
	return a.answerList(c, q)
}

func (a *API) answerList(c *call, q cube.SandboxQuery) (answer, error) {
	page, err := a.svc.List(c.ctx(), q)
	if err != nil {
		return answer{}, err
	}
	out := make([]openapi.ListedSandbox, len(page.Sandboxes))
	for i, r := range page.Sandboxes {
		out[i] = a.listed(c, r)
	}
	ans := answer{status: http.StatusOK, body: out, header: map[string]string{"X-Total-Running": strconv.Itoa(page.Running)}}
	if page.Next != "" {
		ans.header["X-Next-Token"] = page.Next
	}
	return ans, nil
}

// metadata reads a filter: a query string in a parameter. E2B's clients escape keys
// and values once more than that takes.
func metadata(c *call, s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	v, err := url.ParseQuery(s)
	if err != nil {
		return nil, invalid("metadata %.64q: want key=value&key2=value2, each escaped, and the whole escaped once more", s)
	}
	m := map[string]string{}
	for k := range v {
		if c.e2b() {
			m[unescape(k)] = unescape(v.Get(k))
		} else {
			m[k] = v.Get(k)
		}
	}
	return m, nil
}

// unescape undoes escaping; what is not escaped stays.
func unescape(s string) string {
	if t, err := url.PathUnescape(s); err == nil {
		return t
	}
	return s
}

// phases reads states, with commas or one each.
func phases(values []string) ([]cube.Phase, error) {
	var out []cube.Phase
	for _, v := range values {
		for s := range strings.SplitSeq(v, ",") {
			switch s = strings.TrimSpace(s); s {
			case "":
			case "running", "paused":
				out = append(out, cube.Phase(s))
			default:
				return nil, invalid("state %.20q: want running, paused, or both with a comma", s)
			}
		}
	}
	return out, nil
}

// limit reads how long a page is to be.
func limit(s string) (int, error) { return limitTo(s, pageLimit) }

// limitTo reads a limit that is most where nothing is said, and never more.
func limitTo(s string, most int) (int, error) {
	if s == "" {
		return most, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, invalid("limit %.20q: want 1 to %d", s, most)
	}
	return n, nil
}
