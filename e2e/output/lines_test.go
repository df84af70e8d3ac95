package output

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// lines is the program.
//
//go:embed lines.py
var lines []byte

// record is where it says what it has written.
const record = "/tmp/record"

// plan is how much happens in one form of the test.
type plan struct {
	size                         int64 // bytes of lines
	snapshots, pauses, rollbacks int
	cut                          int64 // a connection breaks after at most so many bytes
	time                         time.Duration
}

// TestNumberedLinesComeOnceAndWholeThroughEverything: a client that resumes by offset reads
// the lines of a command while its sandbox is snapshotted, paused, resumed and rolled back,
// its connections break with bytes on their way, and it stops and begins again. In the end
// it has what the program says that it wrote, byte by byte: of each life that was gone
// back from only what was before the restored moment.
func TestNumberedLinesComeOnceAndWholeThroughEverything(t *testing.T) {
	s.Guard(t)
	p := lab.Pick(
		plan{size: 6 << 20, snapshots: 4, pauses: 1, rollbacks: 2, cut: 2 << 20, time: time.Minute},
		plan{size: 64 << 20, snapshots: 20, pauses: 5, rollbacks: 5, cut: 8 << 20, time: 4 * time.Minute},
		plan{size: 1 << 30, snapshots: 20, pauses: 10, rollbacks: 10, cut: 32 << 20, time: 30 * time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), p.time)
	defer cancel()
	random := lab.Chance(t, uint64(time.Now().UnixNano()))
	b, err := s.API.Create(ctx, client.NewSandbox{Template: "base", Timeout: cube.NeverTimeout})
	if err != nil {
		t.Fatal(err)
	}
	net := newRelay(t, s.State.Data, p.cut, rand.New(rand.NewPCG(random.Uint64(), 1)))
	far, err := client.New(client.Options{APIURL: "http://" + s.State.API, SandboxURL: net.url(), Key: s.Key})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	pid, at := start(ctx, t, b, p.size)
	g, err := far.Guest(b.ID, b.AccessToken)
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(t, g, pid, at, rand.New(rand.NewPCG(random.Uint64(), 2)))
	ended := make(chan error, 1)
	go func() {
		exit, err := r.run(ctx)
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("the program ended with %+v", exit)
		}
		if err != nil {
			cancel()
		}
		ended <- err
	}()
	err = disturb(ctx, b.ID, r, p, random)
	if err != nil {
		cancel()
	}
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	said, err := lab.Shell(ctx, s.API, b, "cat "+record)
	if err != nil {
		t.Fatal(err)
	}
	digest, size, err := r.digest()
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%s %d", digest, size); got != said || size < p.size {
		t.Errorf("it has read %s, the program has written %s", got, said)
	}
	t.Logf("%d bytes, of which %d were read and gone back from; %d connections broke, it began %d times and went back %d times",
		size, r.written-size, net.cuts, r.begins, len(r.backs))
	if net.cuts == 0 || r.begins == 1 {
		t.Error("no connection broke, or it never began again: this has shown nothing")
	}
}

// start starts the program, whose output nobody reads yet, and returns its number and where
// its output begins.
func start(ctx context.Context, t *testing.T, b client.Sandbox, size int64) (uint32, client.Position) {
	t.Helper()
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.WriteFile(ctx, "root", "/tmp/lines.py", bytes.NewReader(lines)); err != nil {
		t.Fatal(err)
	}
	pid, at, err := g.Start(ctx, client.Command{Argv: []string{"python3", "/tmp/lines.py", strconv.FormatInt(size, 10), record}, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	return pid, at
}

// saved is a snapshot, and how far the output had been read before it.
type saved struct {
	image cube.ImageID
	read  int64
}

// disturb snapshots, pauses and rolls back while the reader goes on.
func disturb(ctx context.Context, id cube.SandboxID, r *reader, p plan, random *rand.Rand) error {
	verbs := slices.Concat(slices.Repeat([]string{"snapshot"}, p.snapshots-1), slices.Repeat([]string{"pause"}, p.pauses),
		slices.Repeat([]string{"rollback"}, p.rollbacks))
	random.Shuffle(len(verbs), func(i, j int) { verbs[i], verbs[j] = verbs[j], verbs[i] })
	verbs = slices.Insert(verbs, 0, "snapshot") // there is something to go back to
	var kept []saved
	for i, verb := range verbs {
		part := p.size * 9 / 10 / int64(len(verbs))
		far := part*int64(i) + random.Int64N(part)
		err := r.wait(ctx, func(at client.Position) bool { return at.Offset >= far })
		if err != nil {
			return err
		}
		switch verb {
		case "snapshot":
			read := r.offset()
			var snap client.Snapshot
			if snap, err = s.API.Snapshot(ctx, id, ""); err == nil {
				kept = append(kept[max(0, len(kept)-2):], saved{snap.ID, read})
			}
		case "pause":
			if err = s.API.Pause(ctx, id); err == nil {
				_, err = s.API.Resume(ctx, id, 0)
			}
		case "rollback":
			n := random.IntN(len(kept))
			err = rollBack(ctx, id, r, kept[n])
			// Those behind it are of a line that is no more: what was read there is thrown
			// away, and most of it is not kept inside either.
			kept = kept[:n+1]
		}
		if err != nil {
			return fmt.Errorf("%s, the %dth of %d: %w", verb, i+1, len(verbs), err)
		}
	}
	return nil
}

// rollBack goes back to a snapshot. The reader goes back no further than it had read then.
func rollBack(ctx context.Context, id cube.SandboxID, r *reader, to saved) error {
	r.mu.Lock()
	before, lives := len(r.backs), r.at.Lives
	r.mu.Unlock()
	if err := s.API.Rollback(ctx, id, string(to.image)); err != nil {
		return err
	}
	if err := r.wait(ctx, func(at client.Position) bool { return at.Lives != lives }); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, back := range r.backs[before:] {
		if back.To.Offset < to.read || back.To.Offset >= back.From {
			return fmt.Errorf("it went back to %d from %d, and when the snapshot was asked for had read %d", back.To.Offset, back.From, to.read)
		}
	}
	return nil
}
