package abuse

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
)

// outcome is what may become of a sandbox that is abused.
type outcome int

const (
	// answers: the agent says that it is well, and starts a program.
	answers outcome = iota
	// refuses: the agent says that it is well, and why it starts no program.
	refuses
	// unhealthy: the sandbox is said to be so, with the reason.
	unhealthy
	// dies: it is said why it has ended, and it can be recovered.
	dies
	// endsOrNot: whether the agent inside ends a program, or the host all, depends on who
	// is faster.
	endsOrNot
)

// abuse is what a program inside does. It says "ready" when it has come to what it wants.
type abuse struct {
	as   string // user or root
	line string // for a shell
	want outcome
	// deed: it ends by what it does, and has come to what it wants then only.
	deed bool
	// reason is a part of what is said where it does not answer.
	reason string
}

// readyTime is how long an abuse may take to come to what it wants.
const readyTime = 90 * time.Second

// python makes a line of a program.
func python(text string) string { return "exec python3 - <<'END'\n" + text + "\nEND" }

// withstand has a sandbox be abused and looks that it comes out as it must: what is wrong
// is known, and a rollback, or a recovery, brings everything back.
func withstand(t *testing.T, a abuse) {
	t.Helper()
	ctx := t.Context()
	b, err := s.API.Create(ctx, client.NewSandbox{Template: template})
	noError(t, err, "make a sandbox")
	defer func() { noError(t, s.API.Kill(context.Background(), b.ID), "end it") }()
	noError(t, write(ctx, b, "before"), "write to it")
	snap, err := s.API.Snapshot(ctx, b.ID, "")
	noError(t, err, "save it")
	noError(t, write(ctx, b, "after"), "write to it")
	end := begin(t, b, a)
	defer end()
	got := look(t, b, a.reason)
	if got != a.want && (a.want != endsOrNot || got == unhealthy) {
		t.Errorf("the outcome is %d, want %d", got, a.want)
	}
	if got == dies {
		_, err = s.API.Recover(ctx, b.ID)
	} else {
		err = s.API.Rollback(ctx, b.ID, string(snap.ID))
	}
	noError(t, err, "take it back")
	whole(t, b)
}

// begin has the abuse begin, and returns when it is ready; end waits for what is left of
// that, once it was taken back.
func begin(t *testing.T, b client.Sandbox, a abuse) (end func()) {
	t.Helper()
	g, err := s.API.Guest(b.ID, b.AccessToken)
	noError(t, err, "get to it")
	ctx, cancel := context.WithCancel(context.Background())
	said := &words{ready: make(chan struct{})}
	over := make(chan error, 1)
	go func() {
		_, err := g.Run(ctx, client.Command{Argv: []string{"/bin/bash", "-c", a.line}, User: a.as, Stdout: said, Stderr: said})
		over <- err
	}()
	end = sync.OnceFunc(func() {
		cancel()
		<-over
		t.Logf("it has said %.300q", said)
	})
	patience := time.NewTimer(readyTime)
	defer patience.Stop()
	ready := said.ready
	if a.deed {
		ready = nil
	}
	select {
	case <-ready:
	case err := <-over:
		over <- err
		select {
		case <-said.ready: // it was its last word
		default:
			if a.want != endsOrNot {
				t.Fatalf("it has ended (%v) before it was ready, and said %q", err, said)
			}
		}
	case <-patience.C:
		end()
		t.Fatalf("it is not ready after %v, and has said %q", readyTime, said)
	}
	return end
}

// look asks the agent, and meanwhile looks what the server says of it.
func look(t *testing.T, b client.Sandbox, reason string) outcome {
	t.Helper()
	began := time.Now()
	answer := make(chan error, 1)
	again := func() { go func() { answer <- ask(t.Context(), b) }() }
	again()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-answer:
			if kind, ok := answered(err); ok {
				t.Logf("it answers (%v), after %v", err, time.Since(began))
				return kind
			}
			if strings.HasSuffix(err.Error(), tryAgain) {
				again()
			}
		case <-tick.C:
		}
		kind, said := said(t, b.ID)
		switch {
		case said != "" && !strings.Contains(said, reason):
			t.Fatalf("it is said that %q, want %q in it", said, reason)
		case said != "":
			t.Logf("it is said, after %v: %s", time.Since(began), said)
			return kind
		case time.Since(began) > 3*within:
			t.Fatalf("it does not answer, and nobody says why, after %v", time.Since(began))
		}
	}
}

// tryAgain ends what the agent says while it starts another init.
const tryAgain = "try again (guest agent failed)"

// answered reports whether the agent has answered.
func answered(err error) (outcome, bool) {
	var refused *client.Error // of the server in its place
	switch {
	case err == nil:
		return answers, true
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &refused), strings.HasSuffix(err.Error(), tryAgain):
		return 0, false
	}
	return refuses, strings.HasPrefix(err.Error(), "run /bin/true: ")
}

// said is what the server says is wrong, if anything is.
func said(t *testing.T, id cube.SandboxID) (kind outcome, reason string) {
	t.Helper()
	got, err := s.API.Get(t.Context(), id)
	switch {
	case errors.Is(err, cube.ErrNotFound):
		return dies, err.Error()
	case err != nil:
		t.Fatal(err)
	case got.Unhealthy != nil:
		return unhealthy, got.Unhealthy.Reason
	}
	return 0, ""
}

// whole looks that a sandbox is as it was when it was saved, and well.
func whole(t *testing.T, b client.Sandbox) {
	t.Helper()
	if err := ask(t.Context(), b); err != nil {
		t.Errorf("it was taken back and does not answer: %v", err)
	}
	if got, err := read(t.Context(), b); err != nil || got != "before" {
		t.Errorf("it holds %q (%v), want what it held when it was saved", got, err)
	}
	if got := get(t, b.ID); got.Unhealthy != nil || got.State != "running" {
		t.Errorf("it is %s and %+v, want running and well", got.State, got.Unhealthy)
	}
}

// note is the file by which a life is known.
const note = "/home/user/note"

func write(ctx context.Context, b client.Sandbox, text string) error {
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err != nil {
		return err
	}
	return g.WriteFile(ctx, "user", note, strings.NewReader(text))
}

func read(ctx context.Context, b client.Sandbox) (string, error) {
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err != nil {
		return "", err
	}
	r, err := g.ReadFile(ctx, "user", note)
	if err != nil {
		return "", err
	}
	defer r.Close()
	var out bytes.Buffer
	_, err = out.ReadFrom(r)
	return out.String(), err
}

// words takes what an abuse says, and keeps the beginning.
type words struct {
	ready chan struct{} // closed when it has said so

	mu   sync.Mutex // guards the following
	text []byte
	once sync.Once
}

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, b[:min(len(b), 2000-len(w.text))]...)
	if bytes.Contains(w.text, []byte("ready")) {
		w.once.Do(func() { close(w.ready) })
	}
	return len(b), nil
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}
