package campaign

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// witnessProgram is what must come through everything whole; see its text.
//
//go:embed witness.py
var witnessProgram []byte

const (
	witnessPort = 8000
	witnessPath = "/root/witness.py"
	witnessDir  = "/root/held"
)

// mark is a variable that every witness is started with.
const mark = "as it was at the start"

// startWitness puts the witness into a sandbox and starts it, with so many MiB of
// memory.
func startWitness(ctx context.Context, b client.Sandbox, mib int) error {
	g, err := users.Guest(b.ID, b.AccessToken)
	if err != nil {
		return err
	}
	if err := g.WriteFile(ctx, "root", witnessPath, bytes.NewReader(witnessProgram)); err != nil {
		return err
	}
	var said bytes.Buffer
	exit, err := g.Run(ctx, client.Command{
		Argv: []string{"/usr/bin/python3", witnessPath, witnessDir, strconv.Itoa(witnessPort), strconv.Itoa(mib)},
		User: "root", Env: map[string]string{"MARK": mark}, Stdout: &said, Stderr: &said,
	})
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("the witness: exit status %d: %s", exit.Code, said.String())
	}
	return err
}

// held is what the witness has.
type held struct {
	Broken   []string `json:"broken"`
	Identity string   `json:"identity"`
	PID      int      `json:"pid"`
	Counter  int64    `json:"counter"`
	Digest   string   `json:"digest"`
	Bytes    int64    `json:"bytes"`
	Said     int64    `json:"said"`
	Mark     string   `json:"mark"`
}

// value is what the witness keeps under a key.
type value struct{ Memory, File string }

// errBroken says that a witness is there and has not come through whole.
var errBroken = errors.New("the witness is broken")

// patience is in a context in which a witness may be out of reach for a while, as the
// answer says (503: try again): its server was started a moment ago, or its
// network was killed and comes back.
type patience struct{}

func patiently(ctx context.Context) context.Context { return context.WithValue(ctx, patience{}, true) }

// ask sends the witness of a sandbox one request, through the data plane as any
// client would.
func ask(ctx context.Context, id cube.SandboxID, request map[string]string, answer any) error {
	if ctx.Value(patience{}) == nil {
		return askOnce(ctx, id, request, answer)
	}
	var last error
	err := lab.Until(20*time.Second, "it can be reached", func() error {
		last = askOnce(ctx, id, request, answer)
		var said *refusal
		if errors.As(last, &said) && said.status >= http.StatusBadGateway {
			return last
		}
		return nil
	})
	return errors.Join(err, last)
}

func askOnce(ctx context.Context, id cube.SandboxID, request map[string]string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, users.PortURL(id, witnessPort), bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Close = true // the server may be another the next time
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of the witness in %s: %w", request["op"], id, &refusal{res.StatusCode, res.Status})
	}
	return json.NewDecoder(res.Body).Decode(answer)
}

// look has the witness use all that it holds.
func look(ctx context.Context, id cube.SandboxID) (h held, err error) {
	if err := ask(ctx, id, map[string]string{"op": "check"}, &h); err != nil {
		return h, err
	}
	if h.Mark != mark {
		h.Broken = append(h.Broken, fmt.Sprintf("MARK is %q", h.Mark))
	}
	if len(h.Broken) > 0 {
		err = fmt.Errorf("%w, in %s: %s", errBroken, id, strings.Join(h.Broken, "; "))
	}
	return h, err
}

// whole is the same, and a test that fails.
func whole(t *testing.T, id cube.SandboxID) held {
	t.Helper()
	h, err := look(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// follows reports what of a witness is not what one that was seen before has become:
// the same process, with the same memory, whose counter went on.
func (h held) follows(before held) error {
	switch {
	case h.Identity != before.Identity || h.PID != before.PID:
		return fmt.Errorf("%w: it is another process: %s, pid %d; was %s, pid %d", errBroken, h.Identity, h.PID, before.Identity, before.PID)
	case h.Digest != before.Digest || h.Bytes != before.Bytes:
		return fmt.Errorf("%w: its memory of %d bytes is another", errBroken, h.Bytes)
	case h.Counter < before.Counter:
		return fmt.Errorf("%w: its counter went back from %d to %d", errBroken, before.Counter, h.Counter)
	}
	return nil
}

func get(ctx context.Context, id cube.SandboxID, key string) (v value, err error) {
	return v, ask(ctx, id, map[string]string{"op": "get", "key": key}, &v)
}

// sh runs a shell line in a sandbox and returns what it says.
func sh(ctx context.Context, b client.Sandbox, line string) (string, error) {
	return lab.Shell(ctx, users, b, line)
}
