package http

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	cube "cubesandbox"
)

// asked creates a sandbox with some fields and returns what the service was asked for.
func asked(t *testing.T, as headers, path, fields string) cube.NewSandbox {
	t.Helper()
	s := willing()
	stubbed(t, s).want(201, as, "POST", path, `{"templateID":"base"`+fields+`}`)
	return s.asked.(cube.NewSandbox)
}

func TestWhatACreateGets(t *testing.T) {
	n := asked(t, asCube, "/sandboxes", `,"metadata":{"user":"ann"},"envVars":{"A":"1\t2"},"allow_internet_access":false,
		"network":{"allowOut":["10.0.0.0/8"],"maskRequestHost":"localhost:${PORT}","rules":[{"name":"x"}]},"mcp":{"exa":{}},"unknown":[1]`)
	if n.Template != "base" || n.Metadata["user"] != "ann" || n.Env["A"] != "1\t2" || n.AllowInternet == nil || *n.AllowInternet {
		t.Errorf("asked for %+v", n)
	}
	var network map[string]any
	if err := json.Unmarshal(n.Network, &network); err != nil || network["rules"] == nil || network["maskRequestHost"] != "localhost:${PORT}" {
		t.Errorf("network %s (%v), want all of it kept", n.Network, err)
	}
	if string(n.MCP) != `{"exa":{}}` {
		t.Errorf("mcp %s", n.MCP)
	}
	if n.Private || n.Open {
		t.Errorf("private %v, open %v, want neither", n.Private, n.Open)
	}
	if n := asked(t, asCube, "/sandboxes", ""); n.AllowInternet != nil || n.Network != nil || n.MCP != nil {
		t.Errorf("nothing said became %+v", n)
	}
	if n := asked(t, asE2B, "/v2/sandboxes", `,"mcp":null,"network":null,"metadata":null`); n.MCP != nil || n.Network != nil {
		t.Errorf("null became %+v", n)
	}
}

func TestNamesOfVariablesInAllSpellings(t *testing.T) {
	for _, field := range []string{"envVars", "envs", "env_vars"} {
		if n := asked(t, asCube, "/sandboxes", `,"`+field+`":{"A":"1"}`); !maps.Equal(n.Env, map[string]string{"A": "1"}) {
			t.Errorf("%s: %v", field, n.Env)
		}
	}
}

func TestTheEndInAllSpellings(t *testing.T) {
	for fields, want := range map[string]cube.NewSandbox{
		``: {OnTimeout: cube.OnTimeoutKill},
		`,"autoPause":false,"autoResume":{"enabled":false}`: {OnTimeout: cube.OnTimeoutKill},
		`,"autoPause":true`:                                        {OnTimeout: cube.OnTimeoutPause},
		`,"auto_pause":true`:                                       {OnTimeout: cube.OnTimeoutPause},
		`,"autoPause":true,"autoResume":true`:                      {OnTimeout: cube.OnTimeoutPause, AutoResume: true},
		`,"autoPause":true,"autoResume":{"enabled":true}`:          {OnTimeout: cube.OnTimeoutPause, AutoResume: true},
		`,"auto_pause":true,"auto_resume":{"enabled":true}`:        {OnTimeout: cube.OnTimeoutPause, AutoResume: true},
		`,"autoResume":true`:                                       {OnTimeout: cube.OnTimeoutKill, AutoResume: true},
		`,"autoResume":{}`:                                         {OnTimeout: cube.OnTimeoutKill},
		`,"autoResume":null`:                                       {OnTimeout: cube.OnTimeoutKill},
		`,"lifecycle":{"onTimeout":"pause"}`:                       {OnTimeout: cube.OnTimeoutPause},
		`,"lifecycle":{"on_timeout":"pause","auto_resume":true}`:   {OnTimeout: cube.OnTimeoutPause, AutoResume: true},
		`,"lifecycle":{"autoResume":true}`:                         {OnTimeout: cube.OnTimeoutKill, AutoResume: true},
		`,"lifecycle":{"onTimeout":"kill"},"autoPause":true`:       {OnTimeout: cube.OnTimeoutKill},
		`,"lifecycle":null,"autoPause":true`:                       {OnTimeout: cube.OnTimeoutPause},
		`,"lifecycle":{"onTimeout":"pause","on_timeout":"kill"}`:   {OnTimeout: cube.OnTimeoutPause},
		`,"autoPauseMemory":true,"distributionScope":[],"iam":{}`:  {OnTimeout: cube.OnTimeoutKill},
		`,"volumeMounts":[],"distribution_scope":null,"iam":null`:  {OnTimeout: cube.OnTimeoutKill},
		`,"autoPause":true,"timeout":null,"autoPauseMemory":null`:  {OnTimeout: cube.OnTimeoutPause},
		`,"metadata":{"host-mounts":"another key"},"secure":false`: {OnTimeout: cube.OnTimeoutKill},
	} {
		n := asked(t, asCube, "/sandboxes", fields)
		if n.OnTimeout != want.OnTimeout || n.AutoResume != want.AutoResume {
			t.Errorf("%s: %s, auto resume %v, want %s, %v", fields, n.OnTimeout, n.AutoResume, want.OnTimeout, want.AutoResume)
		}
	}
}

func TestWhoMayGetIn(t *testing.T) {
	for _, tt := range []struct {
		as            headers
		path, fields  string
		open, private bool
	}{
		{asE2B, "/sandboxes", ``, false, false},
		{asE2B, "/sandboxes", `,"secure":true`, false, false},
		{asE2B, "/sandboxes", `,"secure":false`, true, false},
		{asE2B, "/v2/sandboxes", `,"secure":false`, false, false},
		{asCube, "/sandboxes", `,"secure":false`, false, false},
		{asE2B, "/sandboxes", `,"network":{"allowPublicTraffic":false}`, false, true},
		{asCube, "/sandboxes", `,"network":{"allow_public_traffic":false},"secure":false`, false, true},
		{asCube, "/sandboxes", `,"network":{"allowPublicTraffic":true}`, false, false},
	} {
		if n := asked(t, tt.as, tt.path, tt.fields); n.Open != tt.open || n.Private != tt.private {
			t.Errorf("%s %s: open %v, private %v, want %v, %v", tt.path, tt.fields, n.Open, n.Private, tt.open, tt.private)
		}
	}
	w := newWorld(t)
	w.want(400, asE2B, "POST", "/sandboxes", `{"templateID":"base","secure":false,"network":{"allowPublicTraffic":false}}`).
		says("You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag.")
	open := w.want(201, asE2B, "POST", "/sandboxes", `{"templateID":"base","secure":false}`).object()
	if open["envdAccessToken"] != nil || open["trafficAccessToken"] != nil {
		t.Errorf("an open sandbox has tokens: %v", open)
	}
}

// allTraffic is what denies all going out.
const allTraffic = `"0.0.0.0/0"`

func TestWrongCreatesAreRefusedWithTheFieldNamed(t *testing.T) {
	long := strings.Repeat("x", 4097)
	refused := map[string][]string{ // what is said, by fields
		`,"timeout":"300"`:                                {"timeout", "a whole number", "string"},
		`,"timeout":1.5`:                                  {"timeout", "a whole number"},
		`,"timeout":1e30`:                                 {"timeout"},
		`,"metadata":["a"]`:                               {"metadata", "an object", "array"},
		`,"metadata":{"a":1}`:                             {"metadata", "a string", "number"},
		`,"envVars":{"A":true}`:                           {"envVars", "a string", "bool"},
		`,"envs":"A=1"`:                                   {"envVars", "an object", "string"},
		`,"autoPause":"yes"`:                              {"autoPause", "true or false"},
		`,"auto_pause":1`:                                 {"autoPause", "true or false"},
		`,"autoResume":1`:                                 {"autoResume"},
		`,"autoResume":{"enabled":"yes"}`:                 {"autoResume"},
		`,"lifecycle":{"onTimeout":"sleep"}`:              {"lifecycle.onTimeout", "kill or pause"},
		`,"lifecycle":{"on_timeout":1}`:                   {"lifecycle.onTimeout", "a string"},
		`,"lifecycle":{"autoResume":{"enabled":true}}`:    {"lifecycle.autoResume", "true or false"},
		`,"secure":"no"`:                                  {"secure", "true or false"},
		`,"allow_internet_access":"no"`:                   {"allow_internet_access", "true or false"},
		`,"mcp":[]`:                                       {"mcp", "an object"},
		`,"network":[]`:                                   {"network", "an object"},
		`,"network":{"allowPublicTraffic":"no"}`:          {"network.allowPublicTraffic"},
		`,"network":{"allow_out":"10.0.0.1"}`:             {"network.allowOut", "an array"},
		`,"network":{"denyOut":["example.com"]}`:          {"network.denyOut", "example.com"},
		`,"network":{"denyOut":["10.0.0.0/33"]}`:          {"network.denyOut"},
		`,"network":{"allowOut":["example.com"]}`:         {"ALL_TRAFFIC", "deny out"},
		`,"network":{"allowOut":["*.example.com"]}`:       {"ALL_TRAFFIC"},
		`,"network":{"maskRequestHost":"a b"}`:            {"network.maskRequestHost"},
		`,"network":{"mask_request_host":"a/b"}`:          {"network.maskRequestHost"},
		`,"network":{"maskRequestHost":""}`:               {"network.maskRequestHost"},
		`,"network":{"maskRequestHost":"` + long + `"}`:   {"network.maskRequestHost", "512"},
		`,"network":{"maskRequestHost":"x:${PORT}${P}"}`:  {"network.maskRequestHost"},
		`,"network":{"maskRequestHost":"b\u00fccher.de"}`: {"network.maskRequestHost"},
	}
	w := newWorld(t)
	for fields, words := range refused {
		for _, as := range []headers{asE2B, asCube} {
			w.want(400, as, "POST", "/sandboxes", `{"templateID":"base"`+fields+`}`).says(words...)
		}
	}
	for _, fields := range []string{
		`,"network":{"allowOut":["example.com"],"denyOut":[` + allTraffic + `]}`,
		`,"network":{"allowOut":["example.com"]},"allow_internet_access":false`,
		`,"network":{"allowOut":["10.0.0.1","fd00::/8"],"denyOut":["192.168.0.0/16"]}`,
		`,"network":{"maskRequestHost":"${PORT}-x.example.com:${PORT}"}`,
	} {
		w.want(201, asE2B, "POST", "/sandboxes", `{"templateID":"base"`+fields+`}`)
	}
	w.want(400, asE2B, "POST", "/sandboxes", "").says("templateID is required")
	w.want(400, asE2B, "POST", "/sandboxes", `{"templateID":""}`).says("templateID is required")
	w.want(400, asE2B, "POST", "/sandboxes", `{"templateID":7}`).says("templateID", "a string")
	w.want(400, asCube, "POST", "/sandboxes", `[]`).says("no JSON object")
	w.want(400, asCube, "POST", "/sandboxes", `{"templateID":"base"`).says("no JSON object")
	w.want(400, asCube, "POST", "/sandboxes", `{"templateID":"base"} {}`).says("no JSON object")
}

func TestVariablesInCubeSandboxsDialect(t *testing.T) {
	w := newWorld(t)
	forbid := `BASH_ENV ENV LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH LD_ORIGIN_PATH DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH GCONV_PATH PATH PYTHONPATH
		NODE_PATH JAVA_TOOL_OPTIONS _JAVA_OPTIONS GEM_PATH RUBYOPT RUBYLIB PERL5LIB PERLLIB CLASSPATH IFS ld_preload Path`
	for _, name := range strings.Fields(forbid) {
		w.want(400, asCube, "POST", "/sandboxes", fmt.Sprintf(`{"templateID":"base","envVars":{%q:"x"}}`, name)).says("envVars", name)
	}
	for name, value := range map[string]string{
		"": "x", "1A": "x", "A-B": "x", "A=B": "x", "Ä": "x", strings.Repeat("A", 257): "x",
		"LONG": strings.Repeat("x", 4097), "LINES": "a\nb", "NUL": "a\x00", "DEL": "\x7f",
	} {
		body, err := json.Marshal(map[string]any{"templateID": "base", "envVars": map[string]string{name: value}})
		if err != nil {
			t.Fatal(err)
		}
		w.want(400, asCube, "POST", "/sandboxes", string(body)).says("envVars")
	}
	n := asked(t, asCube, "/sandboxes", `,"envVars":{"`+strings.Repeat("A", 256)+`":"`+strings.Repeat("x", 4096)+`","_a1":"","TAB":"a\tb"}`)
	if len(n.Env) != 3 {
		t.Errorf("variables %v", n.Env)
	}
}

func TestVariablesInE2BsDialect(t *testing.T) {
	n := asked(t, asE2B, "/sandboxes", `,"envVars":{"PATH":"/opt/bin:/bin","KEY":"-----BEGIN\n-----END\n","a.b-c":"1","BIG":"`+strings.Repeat("x", 100_000)+`"}`)
	if n.Env["PATH"] != "/opt/bin:/bin" || n.Env["KEY"] != "-----BEGIN\n-----END\n" || n.Env["a.b-c"] != "1" || len(n.Env["BIG"]) != 100_000 {
		t.Errorf("variables %.200v", n.Env)
	}
	w := newWorld(t)
	for _, variable := range []string{`"":"x"`, `"A=B":"x"`, `"A\u0000":"x"`, `"A":"\u0000"`, `"A":"` + strings.Repeat("x", 128<<10) + `"`} {
		w.want(400, asE2B, "POST", "/sandboxes", `{"templateID":"base","envVars":{`+variable+`}}`).says("envVars")
	}
}

func TestWhatDoesNotWorkYetIsSaidAndNotIgnored(t *testing.T) {
	w := newWorld(t)
	path := w.create(asE2B)
	for _, as := range []headers{asE2B, asCube} {
		for fields, word := range map[string]string{
			`,"volumeMounts":[{"name":"v","path":"/v"}]`: "volumeMounts",
			`,"iam":{"tokens":{}}`:                       "iam",
			`,"autoPause":true,"autoPauseMemory":false`:  "autoPauseMemory",
			`,"distributionScope":["node-1"]`:            "distributionScope",
			`,"distribution_scope":["node-1"]`:           "distributionScope",
			`,"metadata":{"host-mount":"[]"}`:            "host-mount",
		} {
			w.want(501, as, "POST", "/sandboxes", `{"templateID":"base"`+fields+`}`).says(word, "not implemented yet")
		}
		w.want(501, as, "POST", path+"/snapshots", `{"memory":false}`).says("memory", "not implemented yet")
		for _, l := range later {
			method, path, _ := strings.Cut(l, " ")
			path = strings.NewReplacer("{sandboxID}", "x", "{templateID}", "x", "{buildID}", "x", "{volumeID}", "x", "{secretID}", "x", "{rest...}", "x/y").Replace(path)
			w.want(501, as, method, path, "").says(method, path)
		}
	}
	if n := len(w.want(200, asCube, "GET", "/sandboxes", "").objects()); n != 1 {
		t.Errorf("%d sandboxes are there, want the one", n)
	}
}
