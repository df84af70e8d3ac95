package campaign

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
)

// What is said here is said as any client in any language would: the header, the
// route, the body.

// request is one to the API.
type request struct {
	method, path string
	key          string // idempotency key; empty: none
	body         any    // nil: none
}

// refusal is an answer that says that something failed.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d: %s", r.status, r.text) }

// Unwrap gives it the meaning that its status has.
func (r *refusal) Unwrap() error {
	return map[int]error{
		http.StatusNotFound: cube.ErrNotFound, http.StatusConflict: cube.ErrConflict, http.StatusUnprocessableEntity: cube.ErrKeyReused,
	}[r.status]
}

// send returns the answer to a request, as it came.
func send(ctx context.Context, to string, q request) (*http.Response, error) {
	var body io.Reader
	if q.body != nil {
		b, err := json.Marshal(q.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, q.method, "http://"+to+q.path, body)
	if err != nil {
		return nil, err
	}
	r.Close = true // the server may be another the next time
	r.Header.Set("X-API-Key", key)
	r.Header.Set("X-Cube-Dialect", "cube")
	r.Header.Set("Content-Type", "application/json")
	if q.key != "" {
		r.Header.Set("Idempotency-Key", q.key)
	}
	return http.DefaultClient.Do(r)
}

// call sends a request to the server and reads its answer into out, unless that is nil.
func call(ctx context.Context, q request, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	res, err := send(ctx, api, q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %w", q.method, q.path, &refusal{res.StatusCode, string(b)})
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// newBox is the body of a create.
type newBox struct {
	Template    string            `json:"templateID"`
	Timeout     int               `json:"timeout,omitempty"` // seconds
	Metadata    map[string]string `json:"metadata,omitempty"`
	AutoRecover bool              `json:"autoRecover,omitempty"`
}

func createKeyed(ctx context.Context, key string, n newBox) (b client.Sandbox, err error) {
	return b, call(ctx, request{"POST", "/sandboxes", key, n}, &b)
}

func cloneKeyed(ctx context.Context, key string, id cube.SandboxID, n int) (made []client.Sandbox, err error) {
	return made, call(ctx, request{"POST", "/sandboxes/" + string(id) + "/clone", key, map[string]int{"count": n}}, &made)
}

func snapshotKeyed(ctx context.Context, key string, id cube.SandboxID, name string) (snap snapshot, err error) {
	return snap, call(ctx, request{"POST", "/sandboxes/" + string(id) + "/snapshots", key, map[string]string{"name": name}}, &snap)
}

// snapshot is one, with what a client does not need to know.
type snapshot struct {
	client.Snapshot
	Durable bool `json:"durable"`
}

func snapshotsOf(ctx context.Context, id cube.SandboxID) (all []snapshot, err error) {
	return all, call(ctx, request{method: "GET", path: "/snapshots?limit=100&sandboxID=" + string(id)}, &all)
}

func pauseFilesOnly(ctx context.Context, id cube.SandboxID) error {
	return call(ctx, request{"POST", "/sandboxes/" + string(id) + "/pause", "", map[string]bool{"memory": false}}, nil)
}

func recoverBox(ctx context.Context, id cube.SandboxID) (b client.Sandbox, err error) {
	return b, call(ctx, request{method: "POST", path: "/sandboxes/" + string(id) + "/recover"}, &b)
}

// ended is a sandbox that is no more.
type ended struct {
	ID          cube.SandboxID `json:"sandboxID"`
	Reason      string         `json:"reason"`
	Detail      string         `json:"detail"`
	Recoverable bool           `json:"recoverable"`
	Snapshot    cube.ImageID   `json:"recoverySnapshotID"`
	Returning   bool           `json:"returning"`
}

func endedBoxes(ctx context.Context) (all []ended, err error) {
	return all, call(ctx, request{method: "GET", path: "/sandboxes/ended"}, &all)
}

func endedBox(ctx context.Context, id cube.SandboxID) (ended, error) {
	all, err := endedBoxes(ctx)
	if err != nil {
		return ended{}, err
	}
	for _, e := range all {
		if e.ID == id {
			return e, nil
		}
	}
	return ended{}, fmt.Errorf("%s has not ended, or is forgotten: %w", id, cube.ErrNotFound)
}

func verify(ctx context.Context, id cube.ImageID) error {
	return call(ctx, request{method: "POST", path: "/images/" + string(id) + "/verify"}, nil)
}

// waste is something on disk that nothing needs.
type waste struct{ Kind, Name, Why string }

// garbage says what a collection would free.
func garbage(ctx context.Context) (all []waste, err error) {
	return all, call(ctx, request{"POST", "/gc", "", map[string]bool{"dryRun": true}}, &all)
}

// plan is a verb that is under way.
type plan struct {
	ID      string `json:"planID"`
	Verb    string `json:"verb"`
	Sandbox string `json:"sandboxID"`
}

func plans(ctx context.Context) (all []plan, err error) {
	return all, call(ctx, request{method: "GET", path: "/plans"}, &all)
}
