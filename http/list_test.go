package http

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
)

// crowd makes n sandboxes and returns their ids, the oldest first.
func (w *world) crowd(n int, fields string) []string {
	w.t.Helper()
	var ids []string
	for range n {
		ids = append(ids, fmt.Sprint(w.want(201, asCube, "POST", "/sandboxes", `{"templateID":"base"`+fields+`}`).object()["sandboxID"]))
	}
	return ids
}

func values(r reply, field string) []string {
	r.t.Helper()
	out := []string{}
	for _, o := range r.objects() {
		out = append(out, fmt.Sprint(o[field]))
	}
	return out
}

// pages reads a list to its end.
func (w *world) pages(as headers, path, field string) (all []string, pages int) {
	w.t.Helper()
	next := ""
	for {
		r := w.want(200, as, "GET", path+next, "")
		all = append(all, values(r, field)...)
		pages++
		token := r.header.Get("X-Next-Token")
		if token == "" {
			return all, pages
		}
		next = "&nextToken=" + url.QueryEscape(token)
	}
}

func TestPagesOfSandboxesLeadToAllOfThemInOrder(t *testing.T) {
	w := newWorld(t)
	oldest := w.crowd(7, "")
	newest := slices.Clone(oldest)
	slices.Reverse(newest)
	for _, as := range []headers{asE2B, asCube} {
		for query, want := range map[string][]string{"order=asc": oldest, "order=desc": newest, "state=running": newest} {
			got, pages := w.pages(as, "/v2/sandboxes?limit=3&"+query, "sandboxID")
			if !slices.Equal(got, want) || pages != 3 {
				t.Errorf("%s: %d pages with %v, want 3 with %v", query, pages, got, want)
			}
		}
		r := w.want(200, as, "GET", "/v2/sandboxes?limit=7", "")
		if total, next := r.header.Get("X-Total-Running"), r.header.Get("X-Next-Token"); total != "7" || next != "" {
			t.Errorf("X-Total-Running %q and X-Next-Token %q, want 7 and none", total, next)
		}
		token := url.QueryEscape(w.want(200, as, "GET", "/v2/sandboxes?limit=1", "").header.Get("X-Next-Token"))
		w.want(400, as, "GET", "/v2/sandboxes?order=asc&nextToken="+token, "").says("Invalid next token")
		w.want(400, as, "GET", "/v2/sandboxes?nextToken=nonsense", "").says("Invalid next token")
	}
}

func TestPagesOfSnapshotsLeadToAllOfThem(t *testing.T) {
	w := newWorld(t)
	path := w.create(asCube)
	var want []string
	for range 5 {
		want = append(want, fmt.Sprint(w.want(201, asCube, "POST", path+"/snapshots", "").object()["snapshotID"]))
	}
	slices.Reverse(want)
	for _, as := range []headers{asE2B, asCube} {
		got, pages := w.pages(as, "/snapshots?limit=2", "snapshotID")
		if !slices.Equal(got, want) || pages != 3 {
			t.Errorf("%d pages with %v, want 3 with %v", pages, got, want)
		}
		id := strings.TrimPrefix(path, "/sandboxes/")
		for query, n := range map[string]int{"sandboxID=" + id: 5, "sandboxID=" + id + "-node": 5, "sandboxID=nobody": 0, "name=nope": 0} {
			if got := w.want(200, as, "GET", "/snapshots?"+query, "").objects(); got == nil || len(got) != n {
				t.Errorf("%s: %v, want a list of %d", query, got, n)
			}
		}
		for _, n := range []string{"0", "101", "-1", "x", "1.5"} {
			w.want(400, as, "GET", "/snapshots?limit="+n, "").says("limit")
			w.want(400, as, "GET", "/v2/sandboxes?limit="+n, "").says("limit")
		}
	}
}

func TestFiltersOfLists(t *testing.T) {
	w := newWorld(t)
	none := w.crowd(1, "")[0]
	between := time.Now()
	tagged := w.crowd(1, `,"metadata":{"a b":"50%25&x=y","k":"v"}`)[0]
	w.want(204, asCube, "POST", "/sandboxes/"+none+"/pause", "")
	both := []string{tagged, none}
	at := url.QueryEscape(between.UTC().Format(time.RFC3339Nano))
	for query, want := range map[string][]string{
		"":                                both,
		"state=":                          both,
		"state=running":                   {tagged},
		"state=paused":                    {none},
		"state=running,paused":            both,
		"state=running%2Cpaused":          both,
		"state=running&state=paused":      both,
		"template=base":                   both,
		"template=nope":                   {},
		"template=" + string(w.template):  both,
		"startedAfter=" + at:              {tagged},
		"startedAfter=2001-01-01T00:00Z0": nil,
		"state=sleeping":                  nil,
		"order=up":                        nil,
		"template=base:default":           nil,
		"metadata=%25zz":                  nil,
	} {
		for _, as := range []headers{asE2B, asCube} {
			status := 200
			if want == nil {
				status = 400
			}
			r := w.want(status, as, "GET", "/v2/sandboxes?"+query, "")
			if want != nil && !slices.Equal(values(r, "sandboxID"), want) {
				t.Errorf("%q: %v, want %v", query, values(r, "sandboxID"), want)
			}
		}
	}
	once, twice := url.QueryEscape, func(s string) string { return url.QueryEscape(url.PathEscape(s)) }
	for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
		for _, tt := range []struct {
			as     headers
			escape func(string) string
		}{{asE2B, twice}, {asCube, once}} {
			filter := tt.escape("a b") + "=" + tt.escape("50%25&x=y")
			if got := values(w.want(200, tt.as, "GET", path+"?metadata="+url.QueryEscape(filter), ""), "sandboxID"); !slices.Equal(got, []string{tagged}) {
				t.Errorf("%s by %s: %v, want the one", path, tt.as[1], got)
			}
			filter += "&" + tt.escape("k") + "=" + tt.escape("other")
			if got := values(w.want(200, tt.as, "GET", path+"?metadata="+url.QueryEscape(filter), ""), "sandboxID"); len(got) > 0 {
				t.Errorf("%s by %s: %v, want none: all must fit", path, tt.as[1], got)
			}
		}
	}
}

func TestTheOldListHasWhatRunsInE2BsDialectAndAllInCubeSandboxs(t *testing.T) {
	w := newWorld(t)
	all := w.crowd(205, "")
	w.want(204, asCube, "POST", "/sandboxes/"+all[0]+"/pause", "")
	if got := values(w.want(200, asE2B, "GET", "/sandboxes", ""), "state"); len(got) != 204 || slices.Contains(got, "paused") {
		t.Errorf("E2B's list has %d, want the 204 that run", len(got))
	}
	if got := values(w.want(200, asCube, "GET", "/sandboxes", ""), "sandboxID"); len(got) != 205 {
		t.Errorf("CubeSandbox's list has %d, want all 205", len(got))
	}
}

func TestStatesThatPassAreShownAsClientsKnowThem(t *testing.T) {
	changed := time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
	for phase, want := range map[cube.Phase][2]string{
		cube.PhaseRunning:     {"running", "running"},
		cube.PhasePausing:     {"paused", "pausing"},
		cube.PhasePaused:      {"paused", "paused"},
		cube.PhaseResuming:    {"paused", "paused"},
		cube.PhaseRecovering:  {"paused", "paused"},
		cube.PhaseRollingBack: {"running", "running"},
	} {
		s := willing()
		s.record.Phase, s.record.ChangedAt = phase, changed
		w := stubbed(t, s)
		for i, as := range []headers{asE2B, asCube} {
			got := w.want(200, as, "GET", aBox, "").object()
			if got["state"] != want[i] {
				t.Errorf("%s for %s: %v, want %s", phase, as[1], got["state"], want[i])
			}
			if end := got["endAt"]; i == 0 && want[0] == "paused" && end != changed.Format(time.RFC3339Nano) {
				t.Errorf("%s for E2B: endAt %v, want when that began", phase, end)
			}
		}
	}
}
