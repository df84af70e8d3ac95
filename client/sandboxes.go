package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	cube "cubesandbox"
)

// Sandbox is one, as the API shows it. Which fields are set depends on the call:
// tokens come from create, connect and get, and times and sizes from get and list.
type Sandbox struct {
	ID       cube.SandboxID `json:"sandboxID"`
	Template string         `json:"templateID"`
	Alias    string         `json:"alias,omitempty"`
	// State is running, paused or pausing.
	State     string     `json:"state,omitempty"`
	StartedAt *time.Time `json:"startedAt,omitempty"`
	// EndAt is when its time is over, if nothing happens; nil for never.
	EndAt     *time.Time        `json:"endAt,omitempty"`
	CPUs      int               `json:"cpuCount,omitempty"`
	MemoryMiB int64             `json:"memoryMB,omitempty"`
	DiskMiB   int64             `json:"diskSizeMB,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	// Lifecycle says what happens when the time is over.
	Lifecycle *Lifecycle `json:"lifecycle,omitempty"`
	// AccessToken is asked for by the agent, TrafficToken on all other ports.
	AccessToken  string `json:"envdAccessToken,omitempty"`
	TrafficToken string `json:"trafficAccessToken,omitempty"`
	// Domain is what the host names of its ports end in.
	Domain string `json:"domain,omitempty"`
	// Parent is the sandbox that this is a copy of; empty for none.
	Parent cube.SandboxID `json:"parentID,omitempty"`
	// Restored says from what its current life began, if that is known.
	Restored cube.Restored `json:"restored,omitempty"`
	// AutoRecover and FilesFallback are as in NewSandbox.
	AutoRecover   bool   `json:"autoRecover,omitempty"`
	FilesFallback bool   `json:"filesFallback,omitempty"`
	EnvdVersion   string `json:"envdVersion,omitempty"`
	// Unhealthy says what is wrong with its agent; nil where nothing is known to be.
	Unhealthy *Unhealthy `json:"unhealthy,omitempty"`
	// Space is what it takes: a paused one on the server's disk, where Get or Inspect was
	// asked, a running one of its memory and files, where it was Inspect; else nil.
	*Space
}

// Unhealthy says what is wrong with a sandbox that runs.
type Unhealthy struct {
	// Reason is one line for a person.
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// Lifecycle says what happens to a sandbox when its time is over.
type Lifecycle struct {
	OnTimeout  cube.OnTimeout `json:"onTimeout,omitempty"`
	AutoResume bool           `json:"autoResume,omitempty"`
}

// NewSandbox says what to create.
type NewSandbox struct {
	// Template is the id or name of a template or snapshot.
	Template string
	// Timeout without traffic; 0: the server's default, cube.NeverTimeout: none.
	Timeout time.Duration
	// OnTimeout is what happens then; empty: kill.
	OnTimeout cube.OnTimeout
	// AutoResume: traffic to it while it is paused brings it back.
	AutoResume    bool
	Metadata, Env map[string]string
	// NoInternet: nothing outside can be reached from it.
	NoInternet bool
	// Private: its ports need the traffic token.
	Private bool
	// AutoRecover: when it dies it is brought back from its newest snapshot.
	AutoRecover bool
	// FilesFallback: where its memory cannot be restored, it is booted from its files.
	FilesFallback bool
	// Key makes the call idempotent: the same again within a day is answered by what
	// the first one made. 1 to 255 visible ASCII characters; empty: it is not.
	Key string
}

func (n NewSandbox) body() map[string]any {
	b := map[string]any{"templateID": n.Template}
	if n.Timeout != 0 {
		b["timeout"] = seconds(n.Timeout)
	}
	if n.OnTimeout != "" || n.AutoResume {
		b["lifecycle"] = Lifecycle{n.OnTimeout, n.AutoResume}
	}
	if len(n.Metadata) > 0 {
		b["metadata"] = n.Metadata
	}
	if len(n.Env) > 0 {
		b["envVars"] = n.Env
	}
	if n.NoInternet {
		b["allow_internet_access"] = false
	}
	if n.AutoRecover {
		b["autoRecover"] = true
	}
	if n.FilesFallback {
		b["filesFallback"] = true
	}
	if n.Private {
		b["network"] = map[string]any{"allowPublicTraffic": false}
	}
	return b
}

// seconds is a timeout as the API has it; parts of a second are rounded up.
func seconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64((d + time.Second - 1) / time.Second)
}

func sandboxPath(id cube.SandboxID, verb string) string {
	p := "/sandboxes/" + url.PathEscape(string(id))
	if verb != "" {
		p += "/" + verb
	}
	return p
}

// Create makes a sandbox and returns when it answers.
func (c *Client) Create(ctx context.Context, n NewSandbox) (s Sandbox, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: "/sandboxes", body: n.body(), key: n.Key}, &s)
	return s, err
}

// Get returns a sandbox.
func (c *Client) Get(ctx context.Context, id cube.SandboxID) (s Sandbox, err error) {
	_, err = c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "")}, &s)
	return s, err
}

// Inspect returns one sandbox, and what it takes: its kernel is asked.
func (c *Client) Inspect(ctx context.Context, id cube.SandboxID) (s Sandbox, err error) {
	_, err = c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, ""), query: url.Values{"usage": {"true"}}}, &s)
	return s, err
}

// Query says which sandboxes to list.
type Query struct {
	// States wanted: running, paused; empty for both.
	States []string
	// Metadata must all be there.
	Metadata map[string]string
	// Template is an id, or a name without tag.
	Template string
}

func (q Query) values() url.Values {
	v := url.Values{"limit": {"100"}}
	if len(q.States) > 0 {
		v.Set("state", strings.Join(q.States, ","))
	}
	if len(q.Metadata) > 0 {
		m := url.Values{}
		for key, value := range q.Metadata {
			m.Set(key, value)
		}
		v.Set("metadata", m.Encode())
	}
	if q.Template != "" {
		v.Set("template", q.Template)
	}
	return v
}

// List returns all sandboxes that fit, newest first, page after page.
func (c *Client) List(ctx context.Context, q Query) ([]Sandbox, error) {
	return pages[Sandbox](ctx, c, "/v2/sandboxes", q.values())
}

// pages reads a list to its end.
func pages[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	all := []T{}
	for {
		var page []T
		h, err := c.do(ctx, call{method: http.MethodGet, path: path, query: query}, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		next := h.Get("X-Next-Token")
		if next == "" || len(page) == 0 {
			return all, nil
		}
		query.Set("nextToken", next)
	}
}

// Kill ends a sandbox. When it returns nothing is left of it.
func (c *Client) Kill(ctx context.Context, id cube.SandboxID) error {
	_, err := c.do(ctx, call{method: http.MethodDelete, path: sandboxPath(id, "")}, nil)
	return err
}

// Pause saves a sandbox and frees its memory.
func (c *Client) Pause(ctx context.Context, id cube.SandboxID) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "pause")}, nil)
	return err
}

// PauseFilesOnly keeps what a sandbox has written to its disk, and no memory: it will
// be booted from that.
func (c *Client) PauseFilesOnly(ctx context.Context, id cube.SandboxID) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "pause"), body: map[string]any{"memory": false}}, nil)
	return err
}

// Resumption says how a paused sandbox comes back.
type Resumption struct {
	// Timeout from now; 0 leaves the one that it had.
	Timeout time.Duration
	// Files: boot it from its files, whether its memory can be restored or not.
	Files bool
	// FilesFallback: boot it from its files if its memory cannot be restored.
	FilesFallback bool
}

func (o Resumption) body() map[string]any {
	b := map[string]any{}
	if o.Timeout != 0 {
		b["timeout"] = seconds(o.Timeout)
	}
	if o.Files {
		b["memory"] = false
	}
	if o.FilesFallback {
		b["filesFallback"] = true
	}
	return b
}

// Resume brings a paused sandbox back; cube.ErrConflict when it runs. A timeout of 0
// leaves the one that it had.
func (c *Client) Resume(ctx context.Context, id cube.SandboxID, timeout time.Duration) (Sandbox, error) {
	return c.ResumeWith(ctx, id, Resumption{Timeout: timeout})
}

// ResumeWith is Resume that says more.
func (c *Client) ResumeWith(ctx context.Context, id cube.SandboxID, o Resumption) (s Sandbox, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "resume"), body: o.body()}, &s)
	return s, err
}

// Connect makes sure that a sandbox runs. A timeout of 0 leaves the one that it had.
func (c *Client) Connect(ctx context.Context, id cube.SandboxID, timeout time.Duration) (Sandbox, error) {
	return c.ConnectWith(ctx, id, Resumption{Timeout: timeout})
}

// ConnectWith is Connect that says more.
func (c *Client) ConnectWith(ctx context.Context, id cube.SandboxID, o Resumption) (s Sandbox, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "connect"), body: o.body()}, &s)
	return s, err
}

// SetTimeout gives a sandbox a new timeout, counted from now.
func (c *Client) SetTimeout(ctx context.Context, id cube.SandboxID, timeout time.Duration) error {
	body := map[string]any{"timeout": seconds(timeout)}
	_, err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "timeout"), body: body}, nil)
	return err
}

// Rollback takes a running sandbox back to a snapshot, by id or name.
func (c *Client) Rollback(ctx context.Context, id cube.SandboxID, snapshot string) error {
	body := map[string]any{"snapshotID": snapshot}
	_, err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "rollback"), body: body}, nil)
	return err
}

// Cloning says what clones to make.
type Cloning struct {
	// Count is how many, 1 to 100.
	Count int `json:"count"`
	// Concurrency is how many are restored at the same time; 0: as the server thinks.
	Concurrency int `json:"concurrency,omitempty"`
	// Timeout of each; 0: that of the source.
	Timeout time.Duration `json:"-"`
	// Key is as in NewSandbox.
	Key string `json:"-"`
}

// Clone makes sandboxes from a running one, of one instant: all or none.
func (c *Client) Clone(ctx context.Context, id cube.SandboxID, k Cloning) ([]Sandbox, error) {
	body := struct {
		Cloning
		Timeout *int64 `json:"timeout,omitempty"`
	}{Cloning: k}
	if k.Timeout != 0 {
		t := seconds(k.Timeout)
		body.Timeout = &t
	}
	var out []Sandbox
	_, err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "clone"), body: body, key: k.Key}, &out)
	return out, err
}

// PortURL is the address of a port of a sandbox, in the form that needs no DNS.
func (c *Client) PortURL(id cube.SandboxID, port uint16) string {
	if c.data == nil {
		return ""
	}
	return c.data.String() + "/sandbox/" + string(id) + "/" + strconv.Itoa(int(port)) + "/"
}
