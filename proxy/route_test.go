package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	cube "cubesandbox"
)

// echo says what the guest saw.
func echo(who string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s host=%s", who, r.URL.RequestURI(), r.Host)
	})
}

func TestARequestReachesItsSandboxByHostHeadersAndPath(t *testing.T) {
	w := newWorld(t)
	a, b := w.sandbox(), w.sandbox()
	w.serve(a, 1, 8080, echo("a"))
	w.serve(b, 1, 8080, echo("b"))
	w.serve(b, 1, 81, echo("b81"))
	for what, c := range map[string]struct {
		host, path string
		headers    []string
		want       string
	}{
		"host":                      {name(a, 8080), "/x?y=1", nil, "a /x?y=1"},
		"host, any port in it":      {name(b, 8080) + ":9", "/", nil, "b /"},
		"host, upper case":          {strings.ToUpper(name(b, 81)), "/", nil, "b81 /"},
		"headers on localhost":      {"localhost:3002", "/x", []string{idHeader, string(b), portHeader, "81"}, "b81 /x"},
		"headers on an address":     {"", "/x", []string{idHeader, string(a), portHeader, "8080"}, "a /x"},
		"headers, id with a client": {"", "/", []string{idHeader, string(a) + "-abc", portHeader, "8080"}, "a /"},
		"headers on sandbox.domain": {"sandbox.localhost", "/", []string{idHeader, string(a), portHeader, "8080"}, "a /"},
		"host wins over headers":    {name(a, 8080), "/", []string{idHeader, string(b), portHeader, "8080"}, "a /"},
		"path":                      {"", "/sandbox/" + string(b) + "/81/x/y?z=1", nil, "b81 /x/y?z=1"},
		"path, nothing behind":      {"localhost", "/sandbox/" + string(b) + "/81", nil, "b81 /"},
		"path, escapes stay":        {"", "/sandbox/" + string(b) + "/81/a%2Fb%20c", nil, "b81 /a%2Fb%20c"},
		"path of the sandbox's own": {name(a, 8080), "/sandbox/" + string(b) + "/81/x", nil, "a /sandbox/" + string(b) + "/81/x"},
	} {
		status, body, _ := w.get(c.host, c.path, c.headers...)
		if status != 200 || !strings.HasPrefix(body, c.want+" host=") {
			t.Errorf("%s: got %d %q, want %q", what, status, body, c.want)
		}
	}
	eventually(t, "no request counts as open", func() bool { return w.touched() == 0 })
}

func TestWhatNamesNoSandboxIsRefused(t *testing.T) {
	w := newWorld(t)
	id := string(w.sandbox())
	for what, c := range map[string]struct {
		host, path string
		headers    []string
		status     int
		want       string
	}{
		"nothing":           {"localhost", "/", nil, 400, "names none"},
		"foreign host":      {"example.com", "/", nil, 400, "Invalid host"},
		"foreign domain":    {"80-" + id + ".example.com", "/", nil, 400, "Invalid host"},
		"deeper host":       {"80-" + id + ".x.localhost", "/", nil, 400, "Invalid host"},
		"no port in host":   {id + ".localhost", "/", nil, 400, "Invalid host"},
		"short id":          {"80-abc.localhost", "/", nil, 400, "Invalid sandbox id"},
		"port 0":            {"0-" + id + ".localhost", "/", nil, 400, "Invalid sandbox port"},
		"port too high":     {"65536-" + id + ".localhost", "/", nil, 400, "Invalid sandbox port"},
		"port with zeros":   {"080-" + id + ".localhost", "/", nil, 400, "Invalid sandbox port"},
		"host in brackets":  {"[80-" + id + ".localhost]", "/", nil, 400, "Invalid host"},
		"host with a dot":   {"80-" + id + ".localhost.", "/", nil, 400, "Invalid host"},
		"host with more":    {"x-80-" + id + ".localhost", "/", nil, 400, "Invalid sandbox id"},
		"id with a client":  {"80-" + id + "-abc.localhost", "/", nil, 400, "Invalid sandbox id"},
		"empty headers":     {"", "/", []string{idHeader, "", portHeader, ""}, 400, "Invalid sandbox id"},
		"port with a sign":  {"", "/sandbox/" + id + "/+80/", nil, 400, "Invalid sandbox port"},
		"id missing":        {"", "/", []string{portHeader, "80"}, 400, "Missing header: E2b-Sandbox-Id"},
		"port missing":      {"", "/", []string{idHeader, id}, 400, "Missing header: E2b-Sandbox-Port"},
		"id twice":          {"", "/", []string{idHeader, id, idHeader, id, portHeader, "80"}, 400, "more than once"},
		"id with a path":    {"", "/", []string{idHeader, "../../etc", portHeader, "80"}, 400, "Invalid sandbox id"},
		"unknown signature": {"", "/files?path=x&signature=v1_abc", nil, 401, "invalid signature"},
	} {
		status, body, _ := w.get(c.host, c.path, c.headers...)
		var a answer
		if err := json.Unmarshal([]byte(body), &a); err != nil || status != c.status || a.Code != status || !strings.Contains(a.Message, c.want) {
			t.Errorf("%s: got %d %q (%v), want %d with %q", what, status, body, err, c.status, c.want)
		}
	}
}

// TestUnknownClosedPausedAndKilledAreAnsweredAsTheReferencesSay: E2B's clients and
// CubeSandbox's hear what each of their own services says.
func TestUnknownClosedPausedAndKilledAreAnsweredAsTheReferencesSay(t *testing.T) {
	w := newWorld(t)
	at := func(p cube.Phase) cube.SandboxID { return w.sandbox(func(r *cube.Route) { r.Phase = p }) }
	for what, c := range map[string]struct {
		id        cube.SandboxID
		port      int
		cube, e2b int
		message   string
		retry     string
	}{
		"unknown":      {cube.NewSandboxID(), 80, 404, 502, "The sandbox was not found", ""},
		"creating":     {at(cube.PhaseCreating), 80, 404, 502, "The sandbox was not found", ""},
		"closed port":  {at(cube.PhaseRunning), 80, 502, 502, "The sandbox is running but port is not open", ""},
		"agent's port": {at(cube.PhaseRunning), controlPort, 502, 502, "The sandbox is running but port is not open", ""},
		"paused":       {at(cube.PhasePaused), 80, 503, 502, "The sandbox was not found", "5"},
		"pausing":      {at(cube.PhasePausing), 80, 503, 502, "The sandbox was not found", "2"},
		"rolling back": {at(cube.PhaseRollingBack), 80, 503, 409, "The sandbox is rolling-back; try again", "2"},
		"resuming":     {at(cube.PhaseResuming), 80, 503, 409, "The sandbox is resuming; try again", "2"},
		"recovering":   {at(cube.PhaseRecovering), 80, 503, 409, "The sandbox is recovering; try again", "2"},
		"killing":      {at(cube.PhaseKilling), 80, 410, 502, "The sandbox was not found", ""},
		"killed":       {at(cube.PhaseEnded), 80, 410, 502, "The sandbox was not found", ""},
	} {
		status, body, h := w.get(name(c.id, c.port), "/")
		var a answer
		if err := json.Unmarshal([]byte(body), &a); err != nil || status != c.cube || a.Code != status || a.Error == "" || h.Get("Retry-After") != c.retry {
			t.Errorf("%s, cube: got %d %q, Retry-After %q (%v), want %d, %q", what, status, body, h.Get("Retry-After"), err, c.cube, c.retry)
		}
		for _, headers := range [][]string{{"User-Agent", "e2b-js-sdk/2.51.0"}, {idHeader, string(c.id)}} {
			status, body, _ := w.get(name(c.id, c.port), "/", headers...)
			a = answer{}
			if err := json.Unmarshal([]byte(body), &a); err != nil || status != c.e2b || a.Code != status || a.Message != c.message || a.SandboxID != c.id {
				t.Errorf("%s, e2b: got %d %q (%v), want %d %q", what, status, body, err, c.e2b, c.message)
			}
		}
	}
}

// TestAClosedPortIsSaidAtOnce: with one attempt; who waits for a server asks again.
func TestAClosedPortIsSaidAtOnce(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	if status, _, _ := w.get(name(id, 80), "/", "User-Agent", "e2b-js-sdk/2.51.0"); status != 502 || w.dials != 1 {
		t.Errorf("got %d after %d attempts", status, w.dials)
	}
	w.serve(id, 1, 80, echo("now"))
	if status, _, _ := w.get(name(id, 80), "/"); status != 200 {
		t.Errorf("when a server has started: got %d", status)
	}
}

func TestRedirectsOfAGuestAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, http.RedirectHandler("/login?x=1", http.StatusFound))
	status, _, h := w.get("", "/sandbox/"+string(id)+"/80/x")
	if status != http.StatusFound || h.Get("Location") != "/login?x=1" {
		t.Errorf("got %d, Location %q", status, h.Get("Location"))
	}
}

func TestAPersonSeesAPageAndAScriptJSON(t *testing.T) {
	w := newWorld(t)
	id := cube.NewSandboxID()
	for what, c := range map[string]struct {
		headers []string
		html    bool
	}{
		"navigation":      {[]string{"User-Agent", "Mozilla/5.0", "Sec-Fetch-Mode", "navigate", "Accept", "text/html"}, true},
		"old browser":     {[]string{"User-Agent", "Mozilla/5.0", "Accept", "text/html,*/*"}, true},
		"fetch in a page": {[]string{"User-Agent", "Mozilla/5.0", "Sec-Fetch-Mode", "cors", "Accept", "text/html"}, false},
		"an image":        {[]string{"User-Agent", "Mozilla/5.0", "Sec-Fetch-Mode", "no-cors", "Accept", "image/*"}, false},
		"a program":       {[]string{"User-Agent", "python-httpx/0.28", "Accept", "text/html"}, false},
	} {
		_, body, h := w.get(name(id, 80), "/", c.headers...)
		if got := strings.HasPrefix(h.Get("Content-Type"), "text/html"); got != c.html || !strings.Contains(body, string(id)) {
			t.Errorf("%s: got %s %q", what, h.Get("Content-Type"), body)
		}
		if c.html && (!strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || strings.Contains(body, "<script")) {
			t.Errorf("%s: policy %q", what, h.Get("Content-Security-Policy"))
		}
	}
}

func TestTrafficTokensAreAskedForOnEveryPortButEnvds(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox(func(r *cube.Route) { r.TrafficToken = "secret" })
	w.serve(id, 1, 80, echo("ok"))
	w.serve(id, 1, envdPort, echo("envd"))
	for what, c := range map[string]struct {
		port    int
		headers []string
		want    int
	}{
		"none":            {80, nil, 403},
		"wrong":           {80, []string{trafficHeaders[0], "secre"}, 403},
		"e2b's header":    {80, []string{trafficHeaders[0], "secret"}, 200},
		"cube's header":   {80, []string{trafficHeaders[1], "secret"}, 200},
		"the API key":     {80, []string{keyHeader, key}, 200},
		"envd needs none": {envdPort, nil, 200},
	} {
		if status, body, _ := w.get(name(id, c.port), "/", c.headers...); status != c.want {
			t.Errorf("%s: got %d %q, want %d", what, status, body, c.want)
		}
	}
}

func TestWhatIsForUsIsNotForwarded(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox(func(r *cube.Route) { r.TrafficToken = "secret"; r.MaskHost = "app.example:${PORT}" })
	var got http.Header
	var host string
	see := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, host = r.Header.Clone(), r.Host })
	w.serve(id, 1, 80, see)
	w.serve(id, 1, envdPort, see)
	w.get(name(id, 80), "/", keyHeader, key, idHeader, string(id), portHeader, "80", trafficHeaders[0], "secret", trafficHeaders[1], "secret",
		"X-Forwarded-For", "1.2.3.4", "X-Forwarded-Host", "evil", "Forwarded", "for=evil",
		"X-Forwarded-Port", "1", "X-Forwarded-Prefix", "/evil", "X-Real-Ip", "1.2.3.4", "E2b-Sandbox-Other", "x", "Connection", "X-Hop", "X-Hop", "x", "Authorization", "Basic dXNlcjo=", "X-Custom", "stays")
	for _, h := range append([]string{keyHeader, idHeader, portHeader, "E2b-Sandbox-Other", "Forwarded", "X-Forwarded-Port", "X-Forwarded-Prefix",
		"X-Real-Ip", "X-Hop", "Connection"}, trafficHeaders...) {
		if got.Get(h) != "" {
			t.Errorf("%s got through: %q", h, got.Get(h))
		}
	}
	if got.Get("X-Forwarded-For") != "127.0.0.1" || got.Get("X-Forwarded-Host") != name(id, 80) || got.Get("X-Forwarded-Proto") != "http" {
		t.Errorf("forwarded for %q, host %q, proto %q", got.Get("X-Forwarded-For"), got.Get("X-Forwarded-Host"), got.Get("X-Forwarded-Proto"))
	}
	if got.Get("Authorization") != "Basic dXNlcjo=" || got.Get("X-Custom") != "stays" || host != "app.example:80" {
		t.Errorf("authorization %q, custom %q, host %q", got.Get("Authorization"), got.Get("X-Custom"), host)
	}
	w.get(name(id, envdPort), "/", "Authorization", "Bearer "+key)
	if got.Get("Authorization") != "" || host != name(id, envdPort) {
		t.Errorf("the key got to envd as %q, with host %q", got.Get("Authorization"), host)
	}
	w.get("", "/sandbox/"+string(id)+"/80/x", keyHeader, key)
	if got.Get("X-Forwarded-Prefix") != "/sandbox/"+string(id)+"/80" {
		t.Errorf("prefix %q", got.Get("X-Forwarded-Prefix"))
	}
}

func TestTheKeyStandsForTheAccessTokenOfEnvd(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	var token string
	w.serve(id, 1, envdPort, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { token = r.Header.Get(accessHeader) }))
	w.serve(id, 1, 80, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { token = r.Header.Get(accessHeader) }))
	want := w.routes[id].AccessToken
	for what, c := range map[string]struct {
		port    int
		headers []string
		want    string
	}{
		"no key":        {envdPort, nil, ""},
		"wrong key":     {envdPort, []string{keyHeader, key + "0"}, ""},
		"key":           {envdPort, []string{keyHeader, key}, want},
		"bearer":        {envdPort, []string{"Authorization", "Bearer " + key}, want},
		"its own stays": {envdPort, []string{keyHeader, key, accessHeader, "mine"}, "mine"},
		"only for envd": {80, []string{keyHeader, key}, ""},
	} {
		token = "?"
		if w.get(name(id, c.port), "/", c.headers...); token != c.want {
			t.Errorf("%s: the guest saw %q, want %q", what, token, c.want)
		}
	}
}

func TestEnvdsInternalRoutesAreNotThere(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, envdPort, echo("reached"))
	for _, path := range []string{"/init", "//init", "/./init", "/x/../init", "/%2finit", "/init/", "/INIT", "/%69nit", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"} {
		for _, r := range []*http.Request{
			w.request(http.MethodPost, name(id, envdPort), path, nil, keyHeader, key),
			w.request(http.MethodPost, "", "/sandbox/"+string(id)+"/49983"+path, nil, keyHeader, key),
		} {
			if status, body, _ := w.do(r); status != 404 {
				t.Errorf("%s: got %d %q", r.URL.Path, status, body)
			}
		}
	}
	if status, body, _ := w.get(name(id, envdPort), "/initial"); status != 200 {
		t.Errorf("a path that only looks like it: %d %q", status, body)
	}
}

func FuzzTargets(f *testing.F) {
	f.Add("80-0123456789abcdef0123456789abcdef.localhost", "/", "", "")
	f.Add("localhost", "/sandbox/0123456789abcdef0123456789abcdef/80/x", "", "")
	f.Add("[::1]:80", "/", "0123456789abcdef0123456789abcdef", "80")
	p := &Proxy{domain: "localhost", sandboxes: &world{}, searches: make(chan struct{}, 1)}
	f.Fuzz(func(t *testing.T, host, path, id, port string) {
		u, err := url.Parse(path)
		if err != nil {
			return
		}
		r := &http.Request{Host: host, URL: u, Header: http.Header{}}
		if id != "" {
			r.Header[idHeader], r.Header[portHeader] = []string{id}, []string{port}
		}
		got, no := p.targetOf(r)
		if no != nil {
			if no.status < 400 || no.status > 499 {
				t.Errorf("status %d", no.status)
			}
			return
		}
		if _, err := cube.ParseSandboxID(string(got.id)); err != nil || got.port == 0 {
			t.Errorf("%q %q %q %q gave %+v", host, path, id, port, got)
		}
	})
}
