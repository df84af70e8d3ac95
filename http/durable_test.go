package http

import (
	"fmt"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
)

func TestWhatIsAskedForOfFilesAndRecoveryReachesTheService(t *testing.T) {
	for _, as := range []headers{asE2B, asCube} {
		for fields, want := range map[string][2]bool{
			``:                    {false, false},
			`,"autoRecover":true`: {true, false},
			`,"filesFallback":true,"autoRecover":false`:   {false, true},
			`,"auto_recover":true,"files_fallback":true`:  {true, true},
			`,"autoRecover":null,"filesFallback":null`:    {false, false},
			`,"autoPause":true,"filesFallback":true`:      {false, true},
			`,"lifecycle":{"onTimeout":"pause"},"iam":{}`: {false, false},
		} {
			if n := asked(t, as, "/sandboxes", fields); n.AutoRecover != want[0] || n.FilesFallback != want[1] {
				t.Errorf("%s: auto recover %v, files fallback %v, want %v", fields, n.AutoRecover, n.FilesFallback, want)
			}
		}
		for body, want := range map[string]cube.Pausing{``: {}, `{"memory":true}`: {}, `{"memory":false}`: {FilesOnly: true}} {
			s := willing()
			stubbed(t, s).want(204, as, "POST", aBox+"/pause", body)
			if s.asked != want {
				t.Errorf("pause %s: asked for %+v, want %+v", body, s.asked, want)
			}
		}
		for body, want := range map[string][2]bool{
			`{"timeout":60}`:                 {false, false},
			`{"timeout":60,"memory":true}`:   {false, false},
			`{"timeout":60,"memory":false}`:  {true, false},
			`{"filesFallback":true}`:         {false, true},
			`{"files_fallback":true}`:        {false, true},
			`{"memory":null,"autoPause":""}`: {false, false},
		} {
			for verb, status := range map[string]int{"/resume": 201, "/connect": 200} {
				s := willing()
				if strings.Contains(body, `""`) {
					stubbed(t, s).want(400, as, "POST", aBox+verb, body).says("autoPause", "true or false")
					continue
				}
				stubbed(t, s).want(status, as, "POST", aBox+verb, body)
				if o := s.asked.(cube.Resumption); o.Files != want[0] || o.FilesFallback != want[1] {
					t.Errorf("%s %s: files %v, fallback %v, want %v", verb, body, o.Files, o.FilesFallback, want)
				}
			}
		}
		w := stubbed(t, willing())
		for field, path := range map[string]string{"filesFallback": aBox + "/resume", "memory": aBox + "/pause", "dryRun": "/gc"} {
			w.want(400, as, "POST", path, `{"`+field+`":"yes"}`).says(field, "true or false")
		}
	}
}

func TestAMemoryThatCannotBeRestoredIsSaidWithTheWayToItsFiles(t *testing.T) {
	for _, as := range []headers{asE2B, asCube} {
		w := newWorld(t)
		for what, c := range map[string]struct {
			spoil  func(cube.ImageID) error
			status int
			code   string
		}{"corrupt": {w.m.Corrupt, 500, "image_corrupt"}, "of another engine": {w.m.Age, 409, "image_incompatible"}} {
			path := w.create(as)
			w.want(204, as, "POST", path+"/pause", "")
			for _, im := range w.m.Images() {
				if im.Kind != cube.KindPause {
					continue
				}
				if err := c.spoil(im.ID); err != nil {
					t.Fatal(err)
				}
			}
			for _, verb := range []string{"/connect", "/resume"} {
				got := w.want(c.status, as, "POST", path+verb, `{"timeout":60}`)
				got.says("cube sandbox resume --files-fallback")
				if code := got.object()["error_code"]; code != c.code {
					t.Errorf("%s: error_code %v, want %s", what, code, c.code)
				}
			}
			if got := w.want(201, as, "POST", path+"/resume", `{"timeout":60,"filesFallback":true}`).object(); got["restored"] != "files" {
				t.Errorf("%s: resumed as %v", what, got)
			}
			w.want(204, as, "DELETE", path, "")
		}
	}
}

func TestFromWhatASandboxCameBackIsSaid(t *testing.T) {
	s := willing()
	w := stubbed(t, s)
	for _, as := range []headers{asE2B, asCube} {
		for _, restored := range []cube.Restored{"", cube.RestoredMemory, cube.RestoredFiles} {
			s.record.Restored, s.record.AutoRecover, s.record.FilesFallback = restored, restored == cube.RestoredFiles, restored == cube.RestoredMemory
			for _, got := range []reply{
				w.want(201, as, "POST", "/sandboxes", `{"templateID":"base"}`), w.want(200, as, "POST", aBox+"/connect", ""),
				w.want(201, as, "POST", aBox+"/resume", ""), w.want(201, as, "POST", aBox+"/recover", ""), w.want(200, as, "GET", aBox, ""),
			} {
				if said, _ := got.object()["restored"].(string); said != string(restored) {
					t.Errorf("%s: restored %q, want %q", got.what, said, restored)
				}
			}
			if d := w.want(200, as, "GET", aBox, "").object(); d["autoRecover"] != s.record.AutoRecover || d["filesFallback"] != s.record.FilesFallback {
				t.Errorf("%v, want auto recover %v, files fallback %v", d, s.record.AutoRecover, s.record.FilesFallback)
			}
		}
	}
}

func TestTheLevelAndTheSpaceOfASnapshotAndOfATemplateAreSaid(t *testing.T) {
	for durable, level := range map[bool]string{false: "published", true: "durable"} {
		s := willing()
		space := cube.Space{Unique: 5 << 20, Shared: 1 << 30}
		s.snapshot = cube.Snapshot{ID: "snap-1", Durable: durable}
		s.spaces = map[cube.ImageID]cube.Space{"snap-1": space, "tpl-1": space}
		s.snapshots = []cube.Snapshot{s.snapshot}
		s.templates = []cube.Template{{Image: cube.Image{ID: "tpl-1", Durable: durable}}}
		w := stubbed(t, s)
		for _, as := range []headers{asE2B, asCube} {
			for _, got := range []map[string]any{
				w.want(201, as, "POST", aBox+"/snapshots", "").object(), w.want(200, as, "GET", "/snapshots", "").objects()[0],
				w.want(200, as, "GET", "/templates/tpl-1", "").object(), w.want(200, as, "GET", "/templates", "").objects()[0],
			} {
				if got["durable"] != durable || got["level"] != level {
					t.Errorf("%v, want durable %v, level %s", got, durable, level)
				}
				if got["uniqueBytes"] != float64(space.Unique) || got["sharedBytes"] != float64(space.Shared) {
					t.Errorf("%v, want %+v", got, space)
				}
			}
		}
	}
}

func TestOfAPausedSandboxItIsSaidWhatItTakesOnDisk(t *testing.T) {
	space := cube.Space{Unique: 5 << 20, Shared: 1 << 30}
	for _, phase := range []cube.Phase{cube.PhasePaused, cube.PhaseRunning} {
		s := willing()
		s.record.Phase, s.record.Image = phase, "snap-1"
		s.spaces = map[cube.ImageID]cube.Space{"snap-1": space}
		w := stubbed(t, s)
		for _, as := range []headers{asE2B, asCube} {
			d := w.want(200, as, "GET", aBox, "").object()
			want := map[string]any{}
			if phase == cube.PhasePaused {
				want = map[string]any{"uniqueBytes": float64(space.Unique), "sharedBytes": float64(space.Shared)}
			}
			if d["uniqueBytes"] != want["uniqueBytes"] || d["sharedBytes"] != want["sharedBytes"] {
				t.Errorf("%s: got %v, want %v", phase, d, want)
			}
		}
	}
}

func TestOfARunningSandboxItIsSaidWhatItTakesWhereThatIsAskedFor(t *testing.T) {
	s := willing()
	s.usage = cube.Usage{HostMemory: 99, GuestMemory: 50, GuestFiles: 7, SharedMemory: 40, SharedFiles: 5}
	w := stubbed(t, s)
	for query, want := range map[string][2]any{"?usage=true": {17.0, 45.0}, "?usage=false": {nil, nil}, "": {nil, nil}} {
		d := w.want(200, asCube, "GET", aBox+query, "").object()
		if got := [2]any{d["uniqueBytes"], d["sharedBytes"]}; got != want {
			t.Errorf("%q: got %v, want %v", query, got, want)
		}
	}
	w.want(400, asCube, "GET", aBox+"?usage=maybe", "")
}

func TestWhatHasEndedIsListedWithItsReasonAndTheWayBack(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	id := func(c string) cube.SandboxID { return cube.SandboxID(strings.Repeat(c, 32)) }
	s := willing()
	s.ended = []cube.Record{
		{ID: id("a"), Template: "tpl-1", Alias: "base", StartedAt: at, End: &cube.Death{Reason: cube.DeathOOM, Detail: "in the sentry", At: at.Add(time.Hour)}, Recoverable: true, Image: "snap-3"},
		{ID: id("b"), Template: "tpl-1", StartedAt: at, End: &cube.Death{Reason: cube.DeathKilled, At: at}},
		{ID: id("c"), Template: "tpl-1", StartedAt: at, End: &cube.Death{Reason: cube.DeathCrash, At: at}, Recoverable: true},
		{ID: id("d"), Template: "tpl-1", StartedAt: at, ChangedAt: at},
	}
	for _, as := range []headers{asE2B, asCube} {
		got := stubbed(t, s).want(200, as, "GET", "/sandboxes/ended", "").objects()
		want := []map[string]any{
			{"sandboxID": id("a"), "templateID": "tpl-1", "alias": "base", "startedAt": "2026-11-30T12:00:00Z", "endedAt": "2026-11-30T13:00:00Z",
				"reason": "oom", "detail": "in the sentry", "recoverable": true, "recoverySnapshotID": "snap-3"},
			{"sandboxID": id("b"), "templateID": "tpl-1", "startedAt": "2026-11-30T12:00:00Z", "endedAt": "2026-11-30T12:00:00Z", "reason": "killed", "recoverable": false},
			{"sandboxID": id("c"), "templateID": "tpl-1", "startedAt": "2026-11-30T12:00:00Z", "endedAt": "2026-11-30T12:00:00Z", "reason": "crash", "recoverable": false},
			{"sandboxID": id("d"), "templateID": "tpl-1", "startedAt": "2026-11-30T12:00:00Z", "endedAt": "2026-11-30T12:00:00Z", "reason": "unknown", "recoverable": false},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
	s.ended = append(s.ended, cube.Record{ID: id("e"), Template: "tpl-1", StartedAt: at, End: &cube.Death{At: at}, Recoverable: true, Image: "snap-0", Phase: cube.PhaseRecovering})
	if last := stubbed(t, s).want(200, asCube, "GET", "/sandboxes/ended", "").objects()[4]; last["returning"] != true || last["recoverable"] != true {
		t.Errorf("one that is being brought back by itself: %v", last)
	}
	for query, want := range map[string]string{
		"": "abcde", "recoverable=false": "abcde", "recoverable=true": "ae", "limit=1000": "abcde", "limit=2": "ab",
		"recoverable=true&limit=2": "ae", "recoverable=true&limit=1": "a",
	} {
		got := ""
		for _, e := range stubbed(t, s).want(200, asCube, "GET", "/sandboxes/ended?"+query, "").objects() {
			got += e["sandboxID"].(string)[:1]
		}
		if got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{"recoverable=1", "limit=0", "limit=1001", "limit=x"} {
		stubbed(t, s).want(400, asCube, "GET", "/sandboxes/ended?"+query, "").says(query[:5], "want")
	}
	if got := stubbed(t, willing()).want(200, asCube, "GET", "/sandboxes/ended", ""); got.text != "[]\n" {
		t.Errorf("of none: %q", got.text)
	}
}

func TestADeadSandboxIsListedAndRecoveredUnderItsId(t *testing.T) {
	w := newWorld(t)
	path := w.create(asCube)
	before := w.want(200, asCube, "GET", path, "").object()
	w.want(409, asCube, "POST", path+"/recover", "")
	w.want(404, asCube, "POST", "/sandboxes/"+strings.Repeat("0", 32)+"/recover", "").says("not found")
	id, err := cube.ParseSandboxID(strings.TrimPrefix(path, "/sandboxes/"))
	if err != nil {
		t.Fatal(err)
	}
	snap := w.want(201, asCube, "POST", path+"/snapshots", "").object()["snapshotID"]
	if err := w.m.Die(id, cube.DeathCrash, "killed by a test"); err != nil {
		t.Fatal(err)
	}
	w.await(404, path)
	w.want(404, asE2B, "GET", path, "").says("crash", "killed by a test", "cube sandbox recover "+string(id))
	if l := w.want(200, asCube, "GET", "/sandboxes/ended", "").objects(); len(l) != 1 || l[0]["sandboxID"] != string(id) || l[0]["reason"] != "crash" || l[0]["recoverySnapshotID"] != snap {
		t.Fatalf("ended: %v", l)
	}
	got := w.want(201, asE2B, "POST", path+"/recover", "").object()
	if got["sandboxID"] != string(id) || got["envdAccessToken"] != before["envdAccessToken"] || got["restored"] != "memory" {
		t.Errorf("recovered as %v, was %v", got, before)
	}
	w.want(200, asCube, "GET", path, "")
	if l := w.want(200, asCube, "GET", "/sandboxes/ended", "").objects(); len(l) != 0 {
		t.Errorf("ended: %v", l)
	}
	w.want(204, asCube, "DELETE", path, "")
	w.want(404, asCube, "POST", path+"/recover", "").says("killed")
}

func TestADeadSandboxIsGivenUpByADelete(t *testing.T) {
	for _, as := range []headers{asE2B, asCube} {
		w := newWorld(t)
		path := w.create(as)
		w.want(201, as, "POST", path+"/snapshots", "")
		if err := w.m.Die(cube.SandboxID(strings.TrimPrefix(path, "/sandboxes/")), cube.DeathCrash, "killed by a test"); err != nil {
			t.Fatal(err)
		}
		w.await(404, path)
		if l := w.want(200, as, "GET", "/sandboxes/ended?recoverable=true", "").objects(); len(l) != 1 {
			t.Fatalf("before: %v", l)
		}
		w.want(204, as, "DELETE", path, "")
		if l := w.want(200, as, "GET", "/sandboxes/ended?recoverable=true", "").objects(); len(l) != 0 {
			t.Errorf("then: %v", l)
		}
		w.want(404, as, "POST", path+"/recover", "")
		w.want(404, as, "DELETE", path, "")
	}
}

func TestAPauseWithoutFilesOfItsOwnIsNotBootedFromThem(t *testing.T) {
	for _, as := range []headers{asE2B, asCube} {
		w := newWorld(t)
		path := w.create(as)
		w.want(204, as, "POST", path+"/pause", "")
		for _, im := range w.m.Images() {
			if im.Kind == cube.KindPause {
				if err := w.m.DropFiles(im.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.want(409, as, "POST", path+"/resume", `{"memory":false}`).says("files apart from its memory")
		w.want(201, as, "POST", path+"/resume", "")
	}
}

func TestAnImageIsVerifiedByIdOrName(t *testing.T) {
	s := willing()
	s.image = cube.Image{ID: "snap-1", Bytes: 5 << 20, Durable: true}
	w := stubbed(t, s)
	got := w.want(200, asCube, "POST", "/images/ready/verify", "").object()
	if s.asked != "ready" || got["imageID"] != "snap-1" || got["bytes"] != float64(5<<20) || got["durable"] != true {
		t.Errorf("asked for %v, got %v", s.asked, got)
	}
	w = newWorld(t)
	w.want(200, asE2B, "POST", "/images/base/verify", "")
	w.want(404, asE2B, "POST", "/images/nope/verify", "").says("not found")
	if err := w.m.Corrupt(w.template); err != nil {
		t.Fatal(err)
	}
	if got := w.want(500, asCube, "POST", "/images/base/verify", ""); got.object()["error_code"] != "image_corrupt" {
		t.Errorf("%s", got.text)
	}
}

func TestGarbageIsCollectedOrOnlyNamed(t *testing.T) {
	s := willing()
	s.garbage = []cube.Garbage{{Kind: cube.GarbageRootfs, Name: "abc", Bytes: 7, Why: "no image has it"}}
	w := stubbed(t, s)
	for body, dry := range map[string]bool{"": false, `{"dryRun":false}`: false, `{"dryRun":true}`: true} {
		got := w.want(200, asCube, "POST", "/gc", body)
		if s.asked != dry || strings.TrimSpace(got.text) != `[{"bytes":7,"kind":"file system","name":"abc","why":"no image has it"}]` {
			t.Errorf("%s: asked with dry %v, got %s", body, s.asked, got.text)
		}
	}
	if got := newWorld(t).want(200, asE2B, "POST", "/gc", ""); got.text != "[]\n" {
		t.Errorf("where nothing is: %q", got.text)
	}
}

func TestPlansSayHowFarTheyAre(t *testing.T) {
	s := willing()
	s.plans = []cube.PlanState{{
		Plan:  cube.Plan{ID: "p1", Verb: cube.VerbClone, Sandbox: "aa", Made: []cube.SandboxID{"bb", "cc"}, Key: "a secret", BeganAt: time.Unix(0, 0)},
		Steps: []cube.StepState{{Name: "saved", Done: true}, {Name: "restored"}}, Ahead: true,
	}}
	got := stubbed(t, s).want(200, asE2B, "GET", "/plans", "").objects()
	want := []map[string]any{{
		"planID": "p1", "verb": "clone", "sandboxID": "aa", "made": []any{"bb", "cc"}, "beganAt": "1970-01-01T00:00:00Z", "ahead": true,
		"steps": []any{map[string]any{"name": "saved", "done": true}, map[string]any{"name": "restored", "done": false}},
	}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := newWorld(t).want(200, asCube, "GET", "/plans", ""); got.text != "[]\n" {
		t.Errorf("where nothing is under way: %q", got.text)
	}
}
