package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
)

func TestWhatHasEndedIsListedAndRecoveredByTheBeginningOfItsId(t *testing.T) {
	u := newUser(t)
	lost := client.Ended{
		ID: cube.SandboxID("abcd" + strings.Repeat("0", 28)), Template: "tpl-1", Alias: "base", Reason: cube.DeathCrash, Detail: "signal 9",
		EndedAt: time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local), Recoverable: true, Recovery: "snap-1",
	}
	gone := client.Ended{ID: cube.SandboxID("abce" + strings.Repeat("0", 28)), Template: "tpl-2", Reason: cube.DeathKilled}
	u.s.AddEnded(lost)
	u.s.AddEnded(gone)
	table := strings.Split(u.ok("sandbox", "ended"), "\n")
	if len(table) != 3 || strings.Join(strings.Fields(table[1]), " ") != string(lost.ID)+" base 2026-11-30 12:00:00 crash snap-1 signal 9" ||
		!strings.Contains(table[2], "tpl-2") || !strings.Contains(table[2], "killed") || !strings.Contains(table[2], " - ") {
		t.Errorf("got %q", table)
	}
	if out := u.ok("sandbox", "ended", "--recoverable", "-q"); out != string(lost.ID) {
		t.Errorf("ids of the recoverable: %q", out)
	}
	var all []client.Ended
	if out := u.ok("sandbox", "ended", "--json"); json.Unmarshal([]byte(out), &all) != nil || len(all) != 2 || all[1].ID != gone.ID {
		t.Errorf("as JSON: %s", out)
	}
	if status, _, err := u.run("sandbox", "recover", "abc"); status != 2 || !strings.Contains(err, "first 4 digits") {
		t.Errorf("too short a beginning: status %d, %s", status, err)
	}
	status, out, err := u.run("sandbox", "recover", "abce", "abcd", "ffff")
	if status != 4 || out != string(lost.ID)+"\n" || !strings.Contains(err, "recover abce") || !strings.Contains(err, "ffff") {
		t.Errorf("got status %d, %q, %s", status, out, err)
	}
	if status, _, err := u.run("sandbox", "recover", string(lost.ID)); status != 5 {
		t.Errorf("of one that runs: status %d, %s", status, err)
	}
	u.s.AddEnded(client.Ended{ID: cube.SandboxID("abcf" + strings.Repeat("0", 28)), Reason: cube.DeathOOM, Recoverable: true, Recovery: "snap-2", Returning: true})
	if out := u.ok("sandbox", "ended"); !strings.Contains(out, "snap-2 (under way)") {
		t.Errorf("one that is being brought back by itself: %s", out)
	}
	if out := u.ok("sandbox", "info", "abcd"); !strings.Contains(out, "restored from") || !strings.Contains(out, "memory") {
		t.Errorf("info: %s", out)
	}
}

func TestTheBeginningOfAnIdMeansWhatCanBeRecovered(t *testing.T) {
	u := newUser(t)
	of := func(first string) cube.SandboxID {
		return cube.SandboxID(first + strings.Repeat("0", 32-len(first)))
	}
	for _, first := range []string{"abcd1", "dead1", "cafe1", "cafe2"} {
		u.s.AddEnded(client.Ended{ID: of(first), Reason: cube.DeathCrash, Recoverable: true, Recovery: "snap-1"})
	}
	for _, first := range []string{"abcd2", "beef1"} {
		u.s.AddEnded(client.Ended{ID: of(first), Reason: cube.DeathKilled})
	}
	u.s.Add(of("dead2"))
	if status, _, err := u.run("sandbox", "recover", "cafe"); status != 2 || !strings.Contains(err, string(of("cafe1"))+"\n  "+string(of("cafe2"))) {
		t.Errorf("of two: status %d, %s", status, err)
	}
	if status, _, err := u.run("sandbox", "recover", "beef"); status != 4 || !strings.Contains(err, "no way back") {
		t.Errorf("of one that cannot be: status %d, %s; want what the server says", status, err)
	}
	if out := u.ok("sandbox", "recover", "abcd"); out != string(of("abcd1")) {
		t.Errorf("recovered %s", out)
	}
	// What runs is killed before what could be recovered.
	for _, want := range []cube.SandboxID{of("dead2"), of("dead1")} {
		if out := u.ok("sandbox", "kill", "dead"); out != string(want) {
			t.Errorf("killed %s, want %s", out, want)
		}
	}
	if status, _, err := u.run("sandbox", "recover", "dead1"); status != 4 {
		t.Errorf("of one that was given up: status %d, %s", status, err)
	}
	for _, c := range u.s.Calls("GET /sandboxes/ended")[:1] {
		if c.Query != "recoverable=true" {
			t.Errorf("asked for %q", c.Query)
		}
	}
	if status, _, err := u.run("sandbox", "kill", "beef"); status != 4 {
		t.Errorf("of one that was killed: status %d, %s", status, err)
	}
}

// TestWhatAGuestSaysDoesNotReachTheTerminalAsACommand: in tables and in errors.
func TestWhatAGuestSaysDoesNotReachTheTerminalAsACommand(t *testing.T) {
	const evil = "a\x1b]0;b\x07c\u009b2J\nd\te\x7f"
	u := newUser(t)
	u.s.AddEnded(client.Ended{ID: cube.NewSandboxID(), Reason: cube.DeathCrash, Detail: evil})
	table := u.ok("sandbox", "ended")
	if !strings.HasSuffix(table, "a]0;bc2J de") || strings.Count(table, "\n") != 1 {
		t.Errorf("the table: %q", table)
	}
	var all []client.Ended
	if out := u.ok("sandbox", "ended", "--json"); json.Unmarshal([]byte(out), &all) != nil || all[0].Detail != evil || strings.Contains(out, "\x1b") {
		t.Errorf("as JSON: %q", out)
	}
	var out strings.Builder
	report(&out, errors.New("one\n"+evil), false, false)
	if out.String() != "cube: one\na]0;bc2J\nde\n" {
		t.Errorf("an error: %q", out.String())
	}
}

func TestFilesAndRecoveryAreAskedForByFlags(t *testing.T) {
	u := newUser(t)
	id := u.ok("sandbox", "create", "--auto-recover", "--files-fallback")
	if b := u.s.Calls("POST /sandboxes")[0].Body; b["autoRecover"] != true || b["filesFallback"] != true {
		t.Errorf("create: %v", b)
	}
	u.ok("sandbox", "pause", "--files-only", id)
	if b := u.s.Calls("POST /sandboxes/" + id + "/pause")[0].Body; b["memory"] != false {
		t.Errorf("pause: %v", b)
	}
	status, out, err := u.run("sandbox", "resume", "--files-fallback", id)
	if status != 0 || out != id+"\n" || !strings.Contains(err, "booted from its files") {
		t.Errorf("resume: status %d, %q, %q; want it said on stderr", status, out, err)
	}
	u.ok("sandbox", "pause", id)
	if status, _, err := u.run("sandbox", "resume", "--files", id); status != 0 || err != "" {
		t.Errorf("resume: status %d, %q; want nothing said that was asked for", status, err)
	}
	calls := u.s.Calls("POST /sandboxes/" + id + "/resume")
	if calls[0].Body["filesFallback"] != true || calls[0].Body["memory"] != nil || calls[1].Body["memory"] != false {
		t.Errorf("resume: %v", calls)
	}
}

func TestIdempotencyKeysAreFlags(t *testing.T) {
	u := newUser(t)
	id := u.ok("sandbox", "create", "--idempotency-key", "k1")
	u.ok("snapshot", "create", id, "--idempotency-key", "k2")
	u.ok("sandbox", "clone", id, "--idempotency-key", "k3")
	of := "POST /sandboxes/" + id
	for route, want := range map[string]string{"POST /sandboxes": "k1", of + "/snapshots": "k2", of + "/clone": "k3"} {
		if got := u.s.Calls(route)[0].Key; got != want {
			t.Errorf("%s: key %q, want %q", route, got, want)
		}
	}
	u.s.Fail("POST /sandboxes", 422)
	if status, _, err := u.run("sandbox", "create", "--idempotency-key", "k1"); status != 5 || !strings.Contains(err, "--idempotency-key") {
		t.Errorf("a key of another request: status %d, %s", status, err)
	}
}

func TestSnapshotsAreVerifiedAndTheirLevelShown(t *testing.T) {
	u := newUser(t)
	source := cube.NewSandboxID()
	good, flipped := cube.ImageID("snap-"+strings.Repeat("1", 24)), cube.ImageID("snap-"+strings.Repeat("2", 24))
	u.s.AddSnapshot(good, source, "good")
	u.s.AddSnapshot(flipped, source, "flipped")
	if out := u.ok("snapshot", "ls"); !strings.Contains(out, "LEVEL") || !strings.Contains(out, "published") || !strings.Contains(out, "durable") ||
		!strings.Contains(out, "UNIQUE    SHARED") || !strings.Contains(out, "5.0 MiB   1.0 GiB") {
		t.Errorf("ls: %s", out)
	}
	status, out, err := u.run("snapshot", "verify", "flipped", "1111")
	if status != 8 || strings.Join(strings.Fields(out), " ") != string(good)+" sound published 5.0 MiB" || !strings.Contains(err, "verify flipped") || !strings.Contains(err, "pages") {
		t.Errorf("got status %d, %q, %s", status, out, err)
	}
	var sound []client.Verified
	if out := u.ok("snapshot", "verify", "good", "--json"); json.Unmarshal([]byte(out), &sound) != nil || len(sound) != 1 || sound[0].ID != good {
		t.Errorf("as JSON: %s", out)
	}
	for _, args := range [][]string{{"nope", "flipped"}, {"flipped", "nope"}} {
		if status, _, err := u.run(append([]string{"snapshot", "verify"}, args...)...); status != 8 || !strings.Contains(err, "nope") {
			t.Errorf("%v: status %d, %s; want that of the corrupt one", args, status, err)
		}
	}
	if status, _, err := u.run("template", "verify", "nope"); status != 4 || !strings.Contains(err, "template nope") {
		t.Errorf("of no template: status %d, %s", status, err)
	}
}

func TestGarbageIsNamedAndCollected(t *testing.T) {
	u := newUser(t)
	u.s.AddGarbage(cube.Garbage{Kind: cube.GarbageRootfs, Name: "abc", Bytes: 3 << 29, Why: "no image has it"})
	u.s.AddGarbage(cube.Garbage{Kind: cube.GarbageStaging, Name: "half", Bytes: 100, Why: "its writer was killed"})
	out := u.ok("gc", "--dry-run")
	if !strings.Contains(out, "no image has it") || !strings.Contains(out, "1.5 GiB") || !strings.Contains(out, "100 B") || !strings.HasSuffix(out, "1.5 GiB would be freed") {
		t.Errorf("dry: %s", out)
	}
	var found []cube.Garbage
	if out := u.ok("gc", "--json"); json.Unmarshal([]byte(out), &found) != nil || len(found) != 2 {
		t.Errorf("as JSON: %s", out)
	}
	if out := u.ok("gc"); out != "0 B freed" {
		t.Errorf("where nothing is: %s", out)
	}
}

func TestPlansShowTheNextStepAndWhatAStartWouldDo(t *testing.T) {
	u := newUser(t)
	u.s.AddPlan(client.Plan{ID: "p1", Verb: cube.VerbPause, Sandbox: "aa", Image: "snap-1", Ahead: true, Steps: []client.Step{{Name: "save", Done: true}, {Name: "end"}}})
	u.s.AddPlan(client.Plan{ID: "p2", Verb: cube.VerbCreate, Sandbox: "bb", Steps: []client.Step{{Name: "restore"}}})
	table := strings.Split(u.ok("plans"), "\n")
	if len(table) != 3 || !strings.Contains(table[1], "1 of 2   end") || !strings.HasSuffix(table[1], "finished") ||
		!strings.Contains(table[2], "0 of 1   restore") || !strings.HasSuffix(table[2], "taken back") {
		t.Errorf("got %q", table)
	}
	var plans []client.Plan
	if out := u.ok("plans", "--json"); json.Unmarshal([]byte(out), &plans) != nil || len(plans) != 2 || plans[0].Steps[1].Name != "end" {
		t.Errorf("as JSON: %s", out)
	}
}
