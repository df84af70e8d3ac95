package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/client/clienttest"
)

func TestASandboxIsMadeShownPausedBroughtBackAndKilled(t *testing.T) {
	s := clienttest.New(t)
	c, ctx := s.Client(t), t.Context()
	made, err := c.Create(ctx, client.NewSandbox{
		Template: "base", Timeout: 1500 * time.Millisecond, OnTimeout: cube.OnTimeoutPause, AutoResume: true, NoInternet: true,
		Private: true, Metadata: map[string]string{"a": "1"}, Env: map[string]string{"B": "2"},
	})
	if err != nil || made.ID == "" || made.AccessToken == "" {
		t.Fatalf("got %+v, %v", made, err)
	}
	body := s.Calls("POST /sandboxes")[0].Body
	if body["timeout"] != 2.0 || body["allow_internet_access"] != false || body["lifecycle"].(map[string]any)["onTimeout"] != "pause" ||
		body["envVars"].(map[string]any)["B"] != "2" || body["network"].(map[string]any)["allowPublicTraffic"] != false {
		t.Errorf("body: got %v; want what was asked for, the timeout rounded up to seconds", body)
	}
	if got, err := c.Get(ctx, made.ID); err != nil || got.State != "running" || got.Metadata["a"] != "1" {
		t.Errorf("get: got %+v, %v", got, err)
	}
	if err := c.Pause(ctx, made.ID); err != nil {
		t.Error(err)
	}
	if err := c.Pause(ctx, made.ID); !errors.Is(err, cube.ErrConflict) {
		t.Errorf("second pause: got %v, want a conflict", err)
	}
	if got, err := c.Resume(ctx, made.ID, cube.NeverTimeout); err != nil || got.State != "running" {
		t.Errorf("resume: got %+v, %v", got, err)
	}
	if got := s.Calls("POST /sandboxes/" + string(made.ID) + "/resume")[0].Body["timeout"]; got != -1.0 {
		t.Errorf("never as a timeout: got %v, want -1", got)
	}
	if _, err := c.Connect(ctx, made.ID, 0); err != nil {
		t.Error(err)
	}
	if err := c.SetTimeout(ctx, made.ID, time.Minute); err != nil {
		t.Error(err)
	}
	if err := errors.Join(c.Kill(ctx, made.ID)); err != nil || len(s.States()) != 0 {
		t.Errorf("kill: got %v, left %v", err, s.States())
	}
	if _, err := c.Get(ctx, made.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("get after kill: got %v, want not found", err)
	}
}

func TestListsAreReadToTheirEnd(t *testing.T) {
	s := clienttest.New(t)
	c, ctx := s.Client(t), t.Context()
	source := cube.NewSandboxID()
	s.Add(source)
	clones, err := c.Clone(ctx, source, client.Cloning{Count: 4, Concurrency: 2, Timeout: time.Minute})
	if err != nil || len(clones) != 4 {
		t.Fatalf("got %v, %v", clones, err)
	}
	if body := s.Calls("POST /sandboxes/" + string(source) + "/clone")[0].Body; body["count"] != 4.0 || body["concurrency"] != 2.0 || body["timeout"] != 60.0 {
		t.Errorf("body: got %v", body)
	}
	all, err := c.List(ctx, client.Query{})
	if err != nil || len(all) != 5 || all[4].ID != source {
		t.Errorf("got %d of 5 sandboxes, %v", len(all), err)
	}
	if n := len(s.Calls("GET /v2/sandboxes")); n != 3 {
		t.Errorf("got %d pages, want 3: the server's hold 2", n)
	}
	for range 3 {
		if _, err := c.Snapshot(ctx, source, "kept"); err != nil {
			t.Fatal(err)
		}
	}
	if snaps, err := c.Snapshots(ctx, source); err != nil || len(snaps) != 3 || !slices.Equal(snaps[0].Names, []string{"kept"}) {
		t.Errorf("got %v, %v", snaps, err)
	}
	if snaps, err := c.Snapshots(ctx, clones[0].ID); err != nil || len(snaps) != 0 {
		t.Errorf("of another sandbox: got %v, %v", snaps, err)
	}
}

func TestMetadataAndStatesOfAQueryReachTheServer(t *testing.T) {
	s := clienttest.New(t)
	c, ctx := s.Client(t), t.Context()
	for _, value := range []string{"a&b=c", "other"} {
		if _, err := c.Create(ctx, client.NewSandbox{Template: "base", Metadata: map[string]string{"k": value}}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.List(ctx, client.Query{Metadata: map[string]string{"k": "a&b=c"}, States: []string{"running", "paused"}, Template: "base"})
	if err != nil || len(got) != 1 || got[0].Metadata["k"] != "a&b=c" {
		t.Errorf("got %v, %v", got, err)
	}
	if q := s.Calls("GET /v2/sandboxes")[0].Query; !strings.Contains(q, "state=running%2Cpaused") || !strings.Contains(q, "template=base") {
		t.Errorf("query: got %q", q)
	}
}

func TestSnapshotsAndTemplatesAreUsedAndDeleted(t *testing.T) {
	s := clienttest.New(t)
	c, ctx, id := s.Client(t), t.Context(), cube.NewSandboxID()
	s.Add(id)
	snap, err := c.Snapshot(ctx, id, "")
	if err != nil || len(snap.Names) != 0 || snap.Source != id {
		t.Fatalf("got %+v, %v", snap, err)
	}
	if err := c.Rollback(ctx, id, string(snap.ID)); err != nil {
		t.Error(err)
	}
	if got, err := c.Create(ctx, client.NewSandbox{Template: string(snap.ID)}); err != nil || got.ID == id {
		t.Errorf("create from a snapshot: got %+v, %v", got, err)
	}
	if templates, err := c.Templates(ctx); err != nil || len(templates) != 1 || templates[0].Names[0] != "base" || templates[0].MemoryMiB != 512 {
		t.Errorf("templates: got %+v, %v", templates, err)
	}
	if err := c.DeleteImage(ctx, string(snap.ID)); err != nil {
		t.Error(err)
	}
	if err := c.DeleteImage(ctx, "a/b:c"); !errors.Is(err, cube.ErrNotFound) || !strings.Contains(err.Error(), "a/b:c") {
		t.Errorf("a name with a slash that is not there: got %v", err)
	}
}

func TestEachStatusMeansAnErrorThatACallerCanActOn(t *testing.T) {
	s := clienttest.New(t)
	c := s.Client(t)
	for status, want := range map[int]error{
		400: cube.ErrInvalid, 401: client.ErrUnauthorized, 403: client.ErrUnauthorized, 404: cube.ErrNotFound, 408: cube.ErrUnavailable,
		409: cube.ErrConflict, 410: cube.ErrDead, 413: cube.ErrInvalid, 422: cube.ErrKeyReused, 429: cube.ErrNoCapacity, 501: cube.ErrUnsupported,
		503: cube.ErrUnavailable, 504: cube.ErrUnavailable, 507: cube.ErrNoSpace,
	} {
		s.Fail("POST /sandboxes", status)
		_, err := c.Create(t.Context(), client.NewSandbox{Template: "base"})
		var e *client.Error
		if !errors.Is(err, want) || !errors.As(err, &e) || e.Status != status || e.RequestID != "req-1" || !strings.Contains(err.Error(), "told to fail") {
			t.Errorf("%d: got %v, want %v with what the server said", status, err, want)
		}
	}
}

// TestWordsCountInAnswersOfTheAPIOnly: an agent, and what runs beside it, is the
// guest's.
func TestWordsCountInAnswersOfTheAPIOnly(t *testing.T) {
	status, body := 0, ""
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	defer h.Close()
	c, err := client.New(client.Options{APIURL: h.URL, SandboxURL: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, err := c.Guest(cube.NewSandboxID(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		status     int
		word       string
		api, agent error
	}{
		{422, "", cube.ErrInvalid, cube.ErrInvalid},
		{422, "idempotency_key_reused", cube.ErrKeyReused, cube.ErrInvalid},
		{404, "image_corrupt", cube.ErrCorrupt, cube.ErrNotFound},
		{409, "image_incompatible", cube.ErrIncompatible, cube.ErrConflict},
	} {
		status, body = tt.status, fmt.Sprintf(`{"code":%d,"message":"a\u001b[31mb\u009bc","error_code":%q}`, tt.status, tt.word)
		if _, err := c.Create(t.Context(), client.NewSandbox{}); !errors.Is(err, tt.api) || err.Error() != "a[31mbc" {
			t.Errorf("%d %s from the API: got %q, want %v, nothing for a terminal", tt.status, tt.word, err, tt.api)
		}
		if _, err := g.ReadFile(t.Context(), "", "/f"); !errors.Is(err, tt.agent) {
			t.Errorf("%d %s from the agent: got %v, want %v", tt.status, tt.word, err, tt.agent)
		}
	}
}

func TestAnAnswerThatIsNoJSONIsShownOnOneLine(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		w.Write([]byte("\x1b[31mproxy error\nmore"))
	}))
	defer h.Close()
	c, err := client.New(client.Options{APIURL: h.URL + "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Health(t.Context()); err == nil || err.Error() != "[31mproxy error" {
		t.Errorf("got %q", err)
	}
}

func TestAServerThatIsNotThereIsUnreachableAndACancelledCallIsCancelled(t *testing.T) {
	h := httptest.NewServer(nil)
	url := h.URL
	h.Close()
	c, err := client.New(client.Options{APIURL: url, SandboxURL: url})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Health(t.Context()); !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), url) {
		t.Errorf("got %v, want unreachable, and where", err)
	}
	g, err := c.Guest(cube.NewSandboxID(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Run(t.Context(), client.Command{Argv: []string{"true"}}); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("run: got %v, want unreachable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Health(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnreachable) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestAddressesThatAreNoneAreRefused(t *testing.T) {
	for _, url := range []string{"", "127.0.0.1:3000", "ftp://host", "http://"} {
		if _, err := client.New(client.Options{APIURL: url}); !errors.Is(err, cube.ErrInvalid) {
			t.Errorf("%q: got %v, want it refused", url, err)
		}
	}
	c, err := client.New(client.Options{APIURL: "http://host"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Guest(cube.NewSandboxID(), ""); !errors.Is(err, cube.ErrInvalid) {
		t.Errorf("without a data plane: got %v", err)
	}
}
