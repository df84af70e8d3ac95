package http

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	cube "cubesandbox"
	"cubesandbox/fake"
)

// nothingBut wants the engine and the list to have so many sandboxes.
func (w *world) nothingBut(n int) {
	w.t.Helper()
	e := w.m.Open()
	defer e.Close()
	live, err := e.Sandboxes(w.t.Context())
	if err != nil || len(live) != n {
		w.t.Errorf("the engine has %d sandboxes (%v), want %d", len(live), err, n)
	}
	if got := len(w.want(200, asCube, "GET", "/sandboxes", "").objects()); got != n {
		w.t.Errorf("%d sandboxes are listed, want %d", got, n)
	}
}

func TestAClientThatGoesAwayDuringACreateLeavesNothing(t *testing.T) {
	w := newWorld(t)
	begun := make(chan struct{})
	w.m.Hook(fake.PointStart, func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan *httptest.ResponseRecorder)
	go func() {
		done <- record(w.api, request(asE2B, "POST", "/sandboxes", `{"templateID":"base"}`).WithContext(ctx))
	}()
	<-begun
	cancel()
	if rec := <-done; rec.Code == 201 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	w.m.Hook(fake.PointStart, nil)
	w.nothingBut(0)
}

func TestClonesForWhichThereIsNoMemoryAreRefusedWithTheFigures(t *testing.T) {
	w := newWorld(t)
	path := w.create(asE2B)
	const one = 128<<20 + 64<<20 // what the fake engine charges for each
	w.m.SetMemory(13 * one)
	for _, as := range []headers{asE2B, asCube} {
		got := w.want(429, as, "POST", path+"/clone", `{"count":20}`)
		got.says("memory", "3840 MiB needed", "2304 MiB free")
		if got.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
		}
	}
	w.nothingBut(1)
	w.want(201, asE2B, "POST", path+"/clone", `{"count":12}`)
	w.want(429, asE2B, "POST", "/v2/sandboxes", `{"templateID":"base"}`)
	w.nothingBut(13)
}

func TestASandboxThatEndedIsNotFoundAndTheAnswerSaysWhy(t *testing.T) {
	w := newWorld(t)
	path := w.create(asE2B)
	id, err := cube.ParseSandboxID(strings.TrimPrefix(path, "/sandboxes/"))
	if err != nil {
		t.Fatal(err)
	}
	w.want(204, asE2B, "DELETE", path, "")
	w.want(404, asE2B, "DELETE", path, "").says("sandbox "+string(id), "killed")
	w.want(404, asCube, "POST", path+"/connect", "").says("killed")
}
