package proxy

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cube "cubesandbox"
)

// signed is a signature as clients make it.
func signed(q url.Values, op, token string) string {
	sum := linkFor(q, op).sign(token)
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// fileURL is a link to a file of a sandbox, without its id.
func (w *world) fileURL(id cube.SandboxID, expires string) string {
	q := url.Values{"path": {"x"}}
	if expires != "" {
		q.Set("signature_expiration", expires)
	}
	q.Set("signature", signed(q, "read", w.routes[id].AccessToken))
	return "/files?" + q.Encode()
}

// TestSignedFileURLsAreFoundBySignature has the vector of E2B's documentation.
func TestSignedFileURLsAreFoundBySignature(t *testing.T) {
	q := url.Values{"path": {"hello.txt"}, "username": {"user"}}
	if got := signed(q, "read", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"); got != "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E" {
		t.Errorf("vector: got %s", got)
	}
	w := newWorld(t)
	a, b := w.sandbox(), w.sandbox()
	w.serve(a, 1, envdPort, echo("a"))
	w.serve(b, 1, envdPort, echo("b"))
	for id, who := range map[cube.SandboxID]string{a: "a", b: "b"} {
		for method, op := range map[string]string{http.MethodGet: "read", http.MethodPost: "write"} {
			q := url.Values{"path": {"/x y"}, "signature_expiration": {"4000000000"}}
			q.Set("signature", signed(q, op, w.routes[id].AccessToken))
			status, body, _ := w.do(w.request(method, "localhost:3002", "/files?"+q.Encode(), nil))
			if status != 200 || !strings.HasPrefix(body, who+" /files?") {
				t.Errorf("%s of %s: got %d %q", op, who, status, body)
			}
			q.Set("path", "/other")
			if status, _, _ := w.do(w.request(method, "localhost:3002", "/files?"+q.Encode(), nil)); status != 401 {
				t.Errorf("another path with the signature: %d", status)
			}
		}
	}
}

// TestEverySignatureThatFitsNoSandboxGetsTheSameAnswer: nobody learns from it how near
// he was, or whether there was such a sandbox.
func TestEverySignatureThatFitsNoSandboxGetsTheSameAnswer(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, envdPort, echo("a"))
	good := w.fileURL(id, "")
	gone := w.fileURL(id, "4000000000")
	if status, _, _ := w.get("", good); status != 200 {
		t.Fatalf("a good one: got %d", status)
	}
	want := ""
	for _, path := range []string{
		strings.Replace(good, "path=x", "path=y", 1),
		strings.Replace(good, "v1_", "v1_A", 1),
		strings.Replace(good, "v1_", "v2_", 1),
		good + "&signature_expiration=4000000000",
		strings.Replace(gone, "4000000000", "4000000001", 1),
		good + "&username=root",
		good[:len(good)-1],
		"/files?path=x&signature=" + strings.Repeat("A", 1000),
		"/files?path=x&signature=v1_" + strings.Repeat("A", 43),
	} {
		status, body, _ := w.get("", path)
		if want == "" {
			want = body
		}
		if status != http.StatusUnauthorized || body != want || !strings.Contains(body, "invalid signature") {
			t.Errorf("%s: got %d %q, want 401 %q", path, status, body, want)
		}
	}
	if status, body, _ := w.do(w.request(http.MethodPost, "", good, nil)); status != http.StatusUnauthorized || body != want {
		t.Errorf("to write with one to read: got %d %q", status, body)
	}
	w.forget(id)
	if status, body, _ := w.get("", good); status != http.StatusUnauthorized || body != want {
		t.Errorf("of a sandbox that is no more: got %d %q", status, body)
	}
}

// TestWhatHasNotTheFormOfASignatureIsNotLookedFor: that costs the same with many
// sandboxes as with none.
func TestWhatHasNotTheFormOfASignatureIsNotLookedFor(t *testing.T) {
	w := newWorld(t)
	w.sandbox()
	for _, signature := range []string{"x", "v1_", "v1_AAA", "v2_" + strings.Repeat("A", 43), "v1_" + strings.Repeat("A", 44), "v1_" + strings.Repeat("%2B", 42) + "%2F!", "v1_" + strings.Repeat("A", 42) + "B"} {
		if status, _, _ := w.get("", "/files?path=x&signature="+signature); status != http.StatusUnauthorized || w.searched() != 0 {
			t.Errorf("%s: got %d after %d searches", signature, status, w.searched())
		}
	}
	if w.get("", "/files?path=x&signature=v1_"+strings.Repeat("A", 43)); w.searched() != 1 {
		t.Errorf("%d searches for one of the right form", w.searched())
	}
}

// TestALinkThatNoAgentCouldTakeIsNotLookedFor: it cannot be made dear by what it says.
func TestALinkThatNoAgentCouldTakeIsNotLookedFor(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, envdPort, echo("a"))
	get := func(path, user, expires string) (int, string) {
		q := url.Values{"path": {path}, "username": {user}, "signature_expiration": {expires}}
		q.Set("signature", signed(q, "read", w.routes[id].AccessToken))
		status, body, _ := w.get("", "/files?"+q.Encode())
		return status, body
	}
	for what, l := range map[string][3]string{
		"path":            {strings.Repeat("x", mostPath+1), "", ""},
		"user":            {"x", strings.Repeat("u", mostUser+1), ""},
		"a padded expiry": {"x", "", strings.Repeat("0", mostExpiry) + "4000000000"},
	} {
		if status, body := get(l[0], l[1], l[2]); status != http.StatusUnauthorized || !strings.Contains(body, "invalid signature") || w.searched() != 0 {
			t.Errorf("%s: got %d %q after %d searches", what, status, body, w.searched())
		}
	}
	if status, _ := get(strings.Repeat("x", mostPath), strings.Repeat("u", mostUser), "9223372036854775807"); status != http.StatusOK || w.searched() != 1 {
		t.Errorf("the longest: got %d after %d searches", status, w.searched())
	}
}

// TestWhoseTurnToSearchDoesNotComeIsToldToComeAgain: the slots are held for longer than
// anybody waits.
func TestWhoseTurnToSearchDoesNotComeIsToldToComeAgain(t *testing.T) {
	w := newWorld(t)
	good := w.fileURL(w.sandbox(), "")
	synctest.Test(t, func(t *testing.T) {
		w.p.searches = make(chan struct{}) // nobody's turn comes
		began, rec := time.Now(), httptest.NewRecorder()
		w.p.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "http://localhost"+good, nil))
		if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" {
			t.Errorf("got %d %v %s", rec.Code, rec.Header(), rec.Body)
		}
		if took := time.Since(began); took != searchTime {
			t.Errorf("it took %v", took)
		}
	})
	if w.searched() != 0 {
		t.Errorf("%d searches", w.searched())
	}
}

// TestSearchesForASignatureAreFewAtATime: a crowd that guesses takes no more of the
// processors than two who do, and whoever gives up waits no longer.
func TestSearchesForASignatureAreFewAtATime(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, envdPort, echo("a"))
	for range mostSearches {
		w.p.searches <- struct{}{}
	}
	var wg sync.WaitGroup
	begun := make(chan struct{}, 20)
	for range 20 {
		wg.Go(func() {
			begun <- struct{}{}
			if status, _, _ := w.get("", w.fileURL(id, "")); status != http.StatusOK {
				t.Errorf("got %d", status)
			}
		})
	}
	for range 20 {
		<-begun
	}
	if status, _, _ := w.get(name(id, envdPort), w.fileURL(id, "")); status != http.StatusOK || w.searched() != 0 {
		t.Errorf("where the sandbox is named: got %d after %d searches", status, w.searched())
	}
	for range mostSearches {
		<-w.p.searches
	}
	wg.Wait()
	if w.searched() != 20 || len(w.p.searches) != 0 {
		t.Errorf("%d searches, %d of them at work", w.searched(), len(w.p.searches))
	}
}

// TestALinkThatHasExpiredNeitherWakesNorKeepsAwake: with the sandbox's id and without.
func TestALinkThatHasExpiredNeitherWakesNorKeepsAwake(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox(paused)
	w.serve(id, 2, envdPort, echo("a"))
	for _, expires := range []string{"1", fmt.Sprint(time.Now().Unix() - 1), "never"} {
		for _, host := range []string{"", name(id, envdPort)} {
			if status, body, _ := w.get(host, w.fileURL(id, expires)); status != http.StatusUnauthorized || w.woken() != 0 || w.touches != 0 {
				t.Errorf("%q at %q: got %d %q, %d wakes, traffic %d times", expires, host, status, body, w.woken(), w.touches)
			}
		}
	}
	if status, body, _ := w.get("", w.fileURL(id, "1")); !strings.Contains(body, "signature is already expired") {
		t.Errorf("got %d %q", status, body)
	}
	if status, _, _ := w.get("", w.fileURL(id, fmt.Sprint(time.Now().Unix()+60))); status != http.StatusOK || w.woken() != 1 {
		t.Errorf("one that is good: got %d after %d wakes", status, w.woken())
	}
}

// TestWhoTalksToTheAgentWithoutItsTokenIsNoTraffic: he is answered, but an idle sandbox
// does not stay awake for him.
func TestWhoTalksToTheAgentWithoutItsTokenIsNoTraffic(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, envdPort, echo("a"))
	for what, c := range map[string]struct {
		path    string
		headers []string
		counts  bool
	}{
		"no token":    {"/health", nil, false},
		"wrong token": {"/process.Process/List", []string{accessHeader, "wrong"}, false},
		"token":       {"/health", []string{accessHeader, w.routes[id].AccessToken}, true},
		"key":         {"/health", []string{keyHeader, key}, true},
		"link":        {w.fileURL(id, ""), nil, true},
	} {
		before := w.touches
		if status, _, _ := w.get(name(id, envdPort), c.path, c.headers...); status != http.StatusOK || w.touches > before != c.counts {
			t.Errorf("%s: got %d, counted %d times", what, status, w.touches-before)
		}
	}
	open := w.sandbox(func(r *cube.Route) { r.AccessToken = "" })
	w.serve(open, 1, envdPort, echo("open"))
	before := w.touches
	if w.get(name(open, envdPort), "/health"); w.touches != before+1 {
		t.Error("one that asks for no token does not count everybody")
	}
}
