package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"

	cube "cubesandbox"
)

// lossy is a way to the server on which every answer is lost: it carries what a client
// says, and closes the connection when the answer comes.
type lossy struct {
	net.Listener
	wg sync.WaitGroup
}

func losing(t *testing.T) *lossy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &lossy{Listener: ln}
	l.wg.Go(l.serve)
	t.Cleanup(func() { ln.Close(); l.wg.Wait() })
	return l
}

func (l *lossy) serve() {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { defer c.Close(); lose(c) })
	}
}

// lose carries one request, and drops the first byte of its answer and all others.
func lose(client net.Conn) {
	server, err := net.Dial("tcp", api)
	if err != nil {
		return
	}
	defer server.Close()
	carried := make(chan struct{})
	go func() { defer close(carried); io.Copy(server, client) }()
	server.Read(make([]byte, 1))
	client.Close()
	<-carried
}

// making is a verb that takes a key: what it is asked for, and what is there of it.
type making struct {
	request func(u *subject) request
	other   map[string]any // another body
	count   int
}

// makings are all that there are.
var makings = map[string]making{
	"create": {func(u *subject) request {
		return request{"POST", "/sandboxes", u.tag, newBox{Template: "base", Metadata: map[string]string{"case": u.tag}}}
	}, map[string]any{"templateID": "base", "metadata": map[string]string{"case": "another"}}, 1},
	"clone": {func(u *subject) request {
		return request{"POST", "/sandboxes/" + string(u.box.ID) + "/clone", u.tag, map[string]int{"count": 2}}
	}, map[string]any{"count": 1}, 2},
	"snapshot": {func(u *subject) request {
		return request{"POST", "/sandboxes/" + string(u.box.ID) + "/snapshots", u.tag, map[string]string{"name": "kept"}}
	}, map[string]any{"name": "another"}, 1},
}

// each runs f with a source for each verb that takes a key.
func each(t *testing.T, f func(t *testing.T, m making, u *subject)) {
	guard(t)
	for name, m := range makings {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			u := &subject{tag: tag()}
			if name != "create" {
				var err error
				u.box, err = createKeyed(ctx, "", newBox{Template: "base", Metadata: map[string]string{"case": u.tag}})
				if err != nil {
					t.Fatal(err)
				}
			}
			f(t, m, u)
		})
	}
}

// made is what is there of the verb: ids of sandboxes or of snapshots.
func (m making) made(ctx context.Context, u *subject) (map[string]bool, error) {
	ids := map[string]bool{}
	boxes, err := u.copies(ctx)
	for _, id := range boxes {
		ids[string(id)] = true
	}
	if err == nil && u.box.ID != "" {
		var snaps []snapshot
		snaps, err = snapshotsOf(ctx, u.box.ID)
		for _, snap := range snaps {
			ids[string(snap.ID)] = true
		}
	}
	return ids, err
}

// answer is the ids in an answer, whichever form it has.
func (m making) answer(ctx context.Context, q request) (map[string]bool, error) {
	type one struct {
		Sandbox  string `json:"sandboxID"`
		Snapshot string `json:"snapshotID"`
	}
	var many []one
	if m.count == 1 {
		many = make([]one, 1)
		if err := call(ctx, q, &many[0]); err != nil {
			return nil, err
		}
	} else if err := call(ctx, q, &many); err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, o := range many {
		ids[o.Sandbox+o.Snapshot] = true
	}
	return ids, nil
}

// once asks and wants the same as what is there, which is as much as was asked for once.
func (m making) once(ctx context.Context, u *subject) error {
	got, err := m.answer(ctx, m.request(u))
	if err != nil {
		return err
	}
	there, err := m.made(ctx, u)
	if err == nil && (len(there) != m.count || fmt.Sprint(there) != fmt.Sprint(got)) {
		err = fmt.Errorf("the answer is %v, and there are %v, want %d", got, there, m.count)
	}
	return err
}

// TestALostAnswerIsAskedForAgainWithTheSameKey: the connection ends when the answer
// comes. With the same key the same is answered, and has been made once; also by the
// next server.
func TestALostAnswerIsAskedForAgainWithTheSameKey(t *testing.T) {
	each(t, func(t *testing.T, m making, u *subject) {
		ctx, way := t.Context(), losing(t)
		for range 2 {
			if res, err := send(ctx, way.Addr().String(), m.request(u)); err == nil {
				t.Fatalf("the answer came: %s", res.Status)
			}
		}
		if err := m.once(ctx, u); err != nil {
			t.Error(err)
		}
		if err := errors.Join(s.Signal(syscall.SIGKILL), s.Start(ctx)); err != nil {
			t.Fatal(err)
		}
		if err := m.once(ctx, u); err != nil {
			t.Errorf("after a restart: %v", err)
		}
	})
}

// TestAClientThatGoesAwayIsAnsweredTheNextTime: it closes its connection as soon as it
// has asked, so the verb may be given up or go on; asked again with the same key, it
// is there once.
func TestAClientThatGoesAwayIsAnsweredTheNextTime(t *testing.T) {
	each(t, func(t *testing.T, m making, u *subject) {
		ctx := t.Context()
		gone, leave := context.WithCancel(ctx)
		began := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			close(began)
			done <- call(gone, m.request(u), nil)
		}()
		<-began
		waitFor(t, "the verb is at work", func() bool {
			all, err := plans(ctx)
			return len(done) > 0 || err == nil && len(all) > 0
		})
		leave()
		<-done
		if err := m.once(ctx, u); err != nil {
			t.Error(err)
		}
	})
}

// TestSixteenAtOnceWithOneKeyMakeOne: all are answered with the same.
func TestSixteenAtOnceWithOneKeyMakeOne(t *testing.T) {
	each(t, func(t *testing.T, m making, u *subject) {
		ctx := t.Context()
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if got, err := m.answer(ctx, m.request(u)); err != nil || len(got) != m.count {
					t.Errorf("got %v (%v), want %d", got, err, m.count)
				}
			})
		}
		wg.Wait()
		if err := m.once(ctx, u); err != nil {
			t.Error(err)
		}
	})
}

// TestAKeyIsGoodForOneRequest: with another body it is refused, and nothing is made;
// also by the next server.
func TestAKeyIsGoodForOneRequest(t *testing.T) {
	each(t, func(t *testing.T, m making, u *subject) {
		ctx := t.Context()
		if err := m.once(ctx, u); err != nil {
			t.Fatal(err)
		}
		other := m.request(u)
		other.body = m.other
		refused := func() {
			t.Helper()
			var said *refusal
			if err := call(ctx, other, nil); !errors.Is(err, cube.ErrKeyReused) || !errors.As(err, &said) {
				t.Errorf("another request with the same key: %v, want status 422", err)
			}
			if err := m.once(ctx, u); err != nil {
				t.Error(err)
			}
		}
		refused()
		if err := errors.Join(s.Signal(syscall.SIGKILL), s.Start(ctx)); err != nil {
			t.Fatal(err)
		}
		refused()
	})
}

// TestAFailureIsNotKept: what was refused is asked for again with the same key when it
// can be done.
func TestAFailureIsNotKept(t *testing.T) {
	guard(t)
	ctx := t.Context()
	u := &subject{tag: tag()}
	u.box = boxOf(t, u)
	if err := users.Pause(ctx, u.box.ID); err != nil {
		t.Fatal(err)
	}
	m := makings["snapshot"]
	if err := call(ctx, m.request(u), nil); !errors.Is(err, cube.ErrConflict) {
		t.Errorf("a snapshot of a paused sandbox: %v, want a conflict", err)
	}
	if _, err := users.Resume(ctx, u.box.ID, 0); err != nil {
		t.Fatal(err)
	}
	if err := m.once(ctx, u); err != nil {
		t.Error(err)
	}
}
