package bench

import (
	"errors"
	"strings"
	"testing"

	cube "cubesandbox"
	"cubesandbox/client/clienttest"
)

func TestEveryRowOfAServerIsMeasuredAndNothingIsLeft(t *testing.T) {
	s := clienttest.New(t)
	other := cube.NewSandboxID()
	s.Add(other)
	done := 0
	rows, err := RunAPI(t.Context(), APIConfig{Client: s.Client(t), Template: "base", N: 0.1, Done: func(r []Row) { done += len(r) }})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rows {
		if r.N < 1 || r.P50 <= 0 || r.P50 > r.P99 {
			t.Errorf("got %+v", r)
		}
		names = append(names, r.Name)
	}
	want := "api.create api.create.busy api.get api.list.2 proxy.health proxy.exec_true api.snapshot api.rollback api.pause api.resume api.clone10"
	if got := strings.Join(names, " "); got != want || done != len(rows) {
		t.Errorf("got %s (%d told of), want %s", got, done, want)
	}
	if left := s.States(); len(left) != 1 || left[other] != "running" {
		t.Errorf("left: %v, want the one that was there before", left)
	}
	if snaps, err := s.Client(t).Snapshots(t.Context(), ""); err != nil || len(snaps) != 0 {
		t.Errorf("snapshots left: %v, %v", snaps, err)
	}
}

func TestAServersFailureNamesItsRowAndLeavesNothing(t *testing.T) {
	s := clienttest.New(t)
	c := APIConfig{Client: s.Client(t), Template: "base", N: 0.1, Only: []string{"api.snapshot"}}
	rows, err := RunAPI(t.Context(), c)
	if err != nil || len(rows) != 2 {
		t.Errorf("only snapshots: got %v, %v", rows, err)
	}
	c.Template = "nope"
	if _, err := RunAPI(t.Context(), c); !errors.Is(err, cube.ErrNotFound) || !strings.Contains(err.Error(), "api.snapshot") {
		t.Errorf("got %v, want an error that names the row", err)
	}
	if left := s.States(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
