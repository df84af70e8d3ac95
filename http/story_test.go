package http

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

// story is a client's day, written down: requests and answers, with names in the
// place of what differs from day to day.
type story struct {
	w     *world
	as    headers
	text  strings.Builder
	known map[string]string // what differs, and its name
	n     map[string]int
}

func (s *story) call(method, path, body string) reply {
	s.w.t.Helper()
	got := s.w.call(s.as.with("X-Request-Id", "story"), method, path, body)
	fmt.Fprintf(&s.text, "%s %s", method, s.named(path))
	if body != "" {
		fmt.Fprintf(&s.text, " %s", s.named(body))
	}
	fmt.Fprintf(&s.text, "\n→ %d", got.status)
	for _, name := range []string{"X-Next-Token", "X-Total-Running", "X-Operation-Id", "Retry-After", "Allow"} {
		if v := got.header.Get(name); v != "" {
			fmt.Fprintf(&s.text, " %s: %s", name, s.named(v))
		}
	}
	s.text.WriteString("\n")
	if got.text != "" {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, []byte(got.text), "", "  "); err != nil {
			s.w.t.Fatalf("%s: %v", got.what, err)
		}
		s.text.WriteString(s.named(pretty.String()))
	}
	s.text.WriteString("\n")
	return got
}

// differing are the forms of what differs. A time becomes its distance from now.
var differing = []struct {
	name string
	form *regexp.Regexp
}{
	{"token", regexp.MustCompile(`\b[0-9a-f]{64}\b`)},
	{"sandbox", regexp.MustCompile(`\b[0-9a-f]{32}\b`)},
	{"snap", regexp.MustCompile(`\bsnap-[0-9a-f]{24}\b`)},
	{"cursor", regexp.MustCompile(`\bM[A-Za-z0-9_-]{60,}`)},
}

// levelForm is what an image survives, which changes while nobody looks.
var levelForm = regexp.MustCompile(`"durable": (true|false)|"level": "(published|durable)"`)

var moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

func (s *story) named(text string) string {
	for _, d := range differing {
		text = d.form.ReplaceAllStringFunc(text, func(v string) string {
			if s.known[v] == "" {
				s.n[d.name]++
				s.known[v] = fmt.Sprintf("<%s %d>", d.name, s.n[d.name])
			}
			return s.known[v]
		})
	}
	text = levelForm.ReplaceAllStringFunc(text, func(v string) string {
		field, _, _ := strings.Cut(v, ":")
		return field + ": <level>"
	})
	return moment.ReplaceAllStringFunc(text, func(v string) string {
		at, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			s.w.t.Fatal(err)
		}
		switch d := time.Until(at).Round(10 * time.Second); {
		case d < -time.Hour:
			return "<long ago>"
		case d < time.Second:
			return "<now>"
		default:
			return fmt.Sprintf("<now + %v>", d)
		}
	})
}

// tell lives the day.
func (s *story) tell() {
	first := box(s.call("POST", "/sandboxes", `{"templateID":"base","timeout":900,"metadata":{"user":"ann"},"envVars":{"STAGE":"test"},"network":{"allowPublicTraffic":false,"egressProxy":{"address":"p:1","password":"hush"}},"autoPause":true}`))
	s.call("POST", "/sandboxes", `{"templateID":"base:default"}`)
	second := box(s.call("POST", "/v2/sandboxes", `{"templateID":"base","allow_internet_access":false,"lifecycle":{"on_timeout":"pause","auto_resume":true}}`))
	s.call("GET", first, "")
	s.call("GET", second, "")
	s.call("GET", "/sandboxes?metadata=user%3Dann", "")
	s.call("POST", first+"/pause", "")
	s.call("POST", first+"/pause", "")
	s.call("GET", first, "")
	s.call("GET", "/sandboxes?metadata=user%3Dann", "")
	s.call("GET", "/v2/sandboxes?state=running&limit=1", "")
	s.call("POST", first+"/connect", `{"timeout":300}`)
	s.call("POST", first+"/connect", `{"timeout":300}`)
	s.call("POST", "/v2"+first+"/connect", "")
	s.call("POST", first+"/resume", "")
	s.call("POST", first+"/pause", "{}")
	s.call("POST", first+"/resume", "")
	s.call("GET", first, "")
	s.call("POST", first+"/pause", `{"memory":false}`)
	s.call("POST", first+"/connect", `{"timeout":300}`)
	s.call("GET", first, "")
	s.call("POST", first+"/timeout", `{"timeout":1800}`)
	s.call("POST", first+"/refreshes", "")
	s.call("GET", first, "")
	named := s.call("POST", first+"/snapshots", `{"name":"ready"}`)
	s.call("POST", first+"/snapshots", "")
	s.call("GET", "/snapshots?limit=1", "")
	s.call("GET", "/snapshots?name=ready", "")
	s.call("POST", first+"/rollback", fmt.Sprintf(`{"snapshotID":%q}`, named.object()["snapshotID"]))
	s.call("POST", first+"/clone", `{"count":2,"concurrency":1}`)
	s.call("GET", "/templates", "")
	s.call("GET", "/templates/base", "")
	s.call("GET", "/templates/aliases/base", "")
	s.call("POST", "/images/ready/verify", "")
	s.call("DELETE", "/templates/ready%3Adefault", "")
	s.call("DELETE", "/templates/ready%3Adefault", "")
	s.call("POST", first+"/recover", "")
	s.call("DELETE", first, "")
	s.call("GET", "/sandboxes/ended", "")
	s.call("POST", first+"/recover", "")
	s.call("POST", "/gc", `{"dryRun":true}`)
	s.call("GET", "/plans", "")
	s.call("GET", "/sandboxes/"+strings.Repeat("0", 32), "")
	s.call("GET", "/health", "")
}

func testStory(t *testing.T, dialect string, as headers) {
	s := &story{w: newWorld(t), as: as, known: map[string]string{}, n: map[string]int{}}
	s.tell()
	file := "testdata/" + dialect + ".golden"
	if *update {
		if err := os.WriteFile(file, []byte(s.text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	is, was := strings.Split(s.text.String(), "\n"), strings.Split(string(want), "\n")
	if slices.Equal(is, was) {
		return
	}
	for i := range is {
		if i >= len(was) || is[i] != was[i] {
			t.Fatalf("%s:%d: got %q; is it meant? go test ./http -update", file, i+1, is[i])
		}
	}
	t.Fatalf("%s has more lines than there were answers", file)
}

func TestADayInE2BsDialect(t *testing.T) { testStory(t, "e2b", asE2B) }

func TestADayInCubeSandboxsDialect(t *testing.T) { testStory(t, "cube", asCube) }
