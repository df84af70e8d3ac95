package http

import (
	"testing"
	"time"

	cube "cubesandbox"
)

const (
	aBox = "/sandboxes/0123456789abcdef0123456789abcdef"
	day  = 24 * time.Hour
	// refused stands for a 400 in tables of timeouts.
	refused time.Duration = -2
)

// given is the timeout that a service was asked for.
func given(t *testing.T, asked any) time.Duration {
	t.Helper()
	switch q := asked.(type) {
	case cube.NewSandbox:
		return q.Timeout
	case cube.Resumption:
		return q.Timeout
	case cube.Cloning:
		return q.Timeout
	case time.Duration:
		return q
	}
	t.Fatalf("asked for %T", asked)
	return 0
}

func TestTimeoutsByDialectAndVersion(t *testing.T) {
	const template = `{"templateID":"base"`
	for name, tt := range map[string]struct {
		as         headers
		path, body string
		want       time.Duration
	}{
		"E2B v1 create, nothing said":        {asE2B, "/sandboxes", template + `}`, 15 * time.Second},
		"E2B v2 create, nothing said":        {asE2B, "/v2/sandboxes", template + `}`, 300 * time.Second},
		"v2 create by an unknown client":     {asE2B.with("User-Agent", "curl/8"), "/v2/sandboxes", template + `}`, 300 * time.Second},
		"E2B create, null":                   {asE2B, "/v2/sandboxes", template + `,"timeout":null}`, 300 * time.Second},
		"E2B create":                         {asE2B, "/sandboxes", template + `,"timeout":1}`, time.Second},
		"E2B create, 0":                      {asE2B, "/sandboxes", template + `,"timeout":0}`, refused},
		"E2B create, never":                  {asE2B, "/sandboxes", template + `,"timeout":-1}`, refused},
		"E2B create, the longest":            {asE2B, "/sandboxes", template + `,"timeout":86400}`, day},
		"E2B create, longer":                 {asE2B, "/sandboxes", template + `,"timeout":86401}`, refused},
		"Cube create, 0":                     {asCube, "/sandboxes", template + `,"timeout":0}`, sweep},
		"Cube create, less than never":       {asCube, "/sandboxes", template + `,"timeout":-2}`, refused},
		"Cube create, longer than the bound": {asCube, "/sandboxes", template + `,"timeout":86401}`, refused},
		"E2B connect v1, nothing said":       {asE2B, aBox + "/connect", ``, 300 * time.Second},
		"E2B connect v2, nothing said":       {asE2B, "/v2" + aBox + "/connect", ``, 300 * time.Second},
		"E2B connect":                        {asE2B, "/v2" + aBox + "/connect", `{"timeout":60}`, time.Minute},
		"E2B connect, negative":              {asE2B, aBox + "/connect", `{"timeout":-1}`, refused},
		"E2B resume, nothing said":           {asE2B, aBox + "/resume", `{}`, 15 * time.Second},
		"Cube connect, nothing said":         {asCube, aBox + "/connect", ``, 0},
		"Cube connect":                       {asCube, aBox + "/connect", `{"timeout":300}`, 300 * time.Second},
		"Cube connect, 0":                    {asCube, aBox + "/connect", `{"timeout":0}`, refused},
		"Cube connect, less than never":      {asCube, aBox + "/connect", `{"timeout":-2}`, refused},
		"Cube resume, nothing said":          {asCube, aBox + "/resume", ``, 0},
		"E2B timeout":                        {asE2B, aBox + "/timeout", `{"timeout":60}`, time.Minute},
		"E2B timeout, at once":               {asE2B, aBox + "/timeout", `{"timeout":0}`, time.Millisecond},
		"E2B timeout, never":                 {asE2B, aBox + "/timeout", `{"timeout":-1}`, refused},
		"Cube timeout, at once":              {asCube, aBox + "/timeout", `{"timeout":0}`, time.Millisecond},
		"Cube timeout, less than never":      {asCube, aBox + "/timeout", `{"timeout":-2}`, refused},
		"timeout, nothing said":              {asE2B, aBox + "/timeout", ``, refused},
		"refresh, nothing said":              {asE2B, aBox + "/refreshes", ``, 15 * time.Second},
		"refresh, 0":                         {asCube, aBox + "/refreshes", `{"duration":0}`, 0},
		"refresh, the longest":               {asCube, aBox + "/refreshes", `{"duration":3600}`, time.Hour},
		"refresh, longer":                    {asCube, aBox + "/refreshes", `{"duration":3601}`, refused},
		"refresh, back":                      {asE2B, aBox + "/refreshes", `{"duration":-1}`, refused},
		"clone, nothing said":                {asCube, aBox + "/clone", `{"count":2}`, 0},
		"clone":                              {asCube, aBox + "/clone", `{"timeout":60}`, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := willing()
			got := stubbed(t, s, func(c *Config) { c.MaxTimeout = day }).call(tt.as, "POST", tt.path, tt.body)
			if tt.want == refused {
				if got.status != 400 || s.asked != nil {
					t.Errorf("%d %s, want 400", got.status, got.text)
				}
				return
			}
			if got.status >= 300 {
				t.Fatalf("%d %s", got.status, got.text)
			}
			if d := given(t, s.asked); d != tt.want {
				t.Errorf("timeout %v, want %v", d, tt.want)
			}
		})
	}
}

func TestWithoutABoundATimeoutMayBeNeverOrHundredYears(t *testing.T) {
	for body, want := range map[string]time.Duration{
		`{"templateID":"base"}`:                        cube.NeverTimeout,
		`{"templateID":"base","timeout":-1}`:           cube.NeverTimeout,
		`{"templateID":"base","timeout":3153600000}`:   100 * 365 * day,
		`{"templateID":"base","timeout":3153600001}`:   refused,
		`{"templateID":"base","timeout":99999999999}`:  refused,
		`{"templateID":"base","timeout":-99999999999}`: refused,
	} {
		s := willing()
		got := stubbed(t, s).call(asCube, "POST", "/sandboxes", body)
		if want == refused {
			if got.status != 400 {
				t.Errorf("%s: %d, want 400", body, got.status)
			}
		} else if d := given(t, s.asked); d != want {
			t.Errorf("%s: timeout %v, want %v", body, d, want)
		}
	}
}

func TestDefaultsAreNoLongerThanTheBoundAndNeverIsBeyondIt(t *testing.T) {
	s := willing()
	w := stubbed(t, s, func(c *Config) { c.MaxTimeout = time.Minute })
	for _, as := range []headers{asE2B, asCube} {
		w.want(201, as, "POST", "/v2/sandboxes", `{"templateID":"base"}`)
		if d := given(t, s.asked); d != time.Minute {
			t.Errorf("timeout %v, want the bound", d)
		}
	}
	w.want(201, asCube, "POST", "/sandboxes", `{"templateID":"base"}`)
	if d := given(t, s.asked); d != time.Minute {
		t.Errorf("timeout %v, want the bound", d)
	}
	w.want(400, asCube, "POST", "/sandboxes", `{"templateID":"base","timeout":-1}`).says("timeout", "60")
	w.want(400, asCube, "POST", aBox+"/timeout", `{"timeout":-1}`)
}

func TestE2BsTimeIsAbsoluteAndCubeSandboxsIsIdle(t *testing.T) {
	s := willing()
	w := stubbed(t, s)
	for _, tt := range []struct {
		as   headers
		want cube.Clock
		user string
	}{
		{asE2B, cube.ClockAbsolute, ""},
		{asCube, cube.ClockIdle, "root"},
		{asCube.with("X-Cube-Dialect", "e2b"), cube.ClockAbsolute, ""},
		{asE2B.with("X-Cube-Dialect", "cube"), cube.ClockIdle, "root"},
		{asE2B.with("X-Cube-Dialect", "nonsense"), cube.ClockAbsolute, ""},
	} {
		w.want(201, tt.as, "POST", "/sandboxes", `{"templateID":"base"}`)
		if n := s.asked.(cube.NewSandbox); n.Clock != tt.want || n.User != tt.user {
			t.Errorf("%v: clock %s, user %q, want %s, %q", tt.as, n.Clock, n.User, tt.want, tt.user)
		}
	}
}

func TestTheConfiguredDialectIsThatOfUnknownClients(t *testing.T) {
	s := willing()
	curl := asCube.with("User-Agent", "curl/8.14")
	stubbed(t, s).want(201, curl, "POST", "/sandboxes", `{"templateID":"base"}`)
	if n := s.asked.(cube.NewSandbox); n.Clock != cube.ClockIdle {
		t.Errorf("clock %s, want CubeSandbox's", n.Clock)
	}
	stubbed(t, s, func(c *Config) { c.Dialect = "e2b" }).want(201, curl, "POST", "/sandboxes", `{"templateID":"base"}`)
	if n := s.asked.(cube.NewSandbox); n.Clock != cube.ClockAbsolute {
		t.Errorf("clock %s, want E2B's", n.Clock)
	}
	if _, err := New(Config{Dialect: "latin"}); err == nil {
		t.Error("a dialect that there is not is accepted")
	}
}

func TestASandboxThatNeverEndsHasAFarEndInE2BsDialectAndNoneInCubeSandboxs(t *testing.T) {
	w := newWorld(t)
	path := box(w.want(201, asCube, "POST", "/sandboxes", `{"templateID":"base"}`))
	if end, ok := w.want(200, asCube, "GET", path, "").object()["endAt"]; ok {
		t.Errorf("CubeSandbox's endAt is %v, want none", end)
	}
	text, _ := w.want(200, asE2B, "GET", path, "").object()["endAt"].(string)
	end, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || time.Until(end) < 50*365*day {
		t.Errorf("E2B's endAt is %q (%v), want a far one", text, err)
	}
}
