package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	cube "cubesandbox"
)

// Snapshot is the saved state of a sandbox.
type Snapshot struct {
	ID    cube.ImageID `json:"snapshotID"`
	Names []string     `json:"names"`
	// Source is the sandbox that was saved.
	Source    cube.SandboxID `json:"originSandboxID,omitempty"`
	CreatedAt *time.Time     `json:"createdAt,omitempty"`
	// Durable: it survives a power cut, which it does within seconds. It always
	// survives the end of all processes of the server.
	Durable bool `json:"durable"`
	// Level says the same in a word: published or durable.
	Level string `json:"level,omitempty"`
	Space
}

// Space is what an image takes on the server's disk, or a sandbox of its memory, in bytes.
type Space struct {
	// Unique is free once the image is deleted and no sandbox runs that was made from it,
	// or the sandbox has ended.
	Unique int64 `json:"uniqueBytes"`
	// Shared is memory of it in pages that stay: others need them too, or they are those
	// of another image.
	Shared int64 `json:"sharedBytes"`
}

// Snapshot saves a running sandbox, which runs on. The name may be empty.
func (c *Client) Snapshot(ctx context.Context, id cube.SandboxID, name string) (Snapshot, error) {
	return c.SnapshotOnce(ctx, id, name, "")
}

// SnapshotOnce is Snapshot with an idempotency key, as in NewSandbox.
func (c *Client) SnapshotOnce(ctx context.Context, id cube.SandboxID, name, key string) (s Snapshot, err error) {
	body := map[string]any{}
	if name != "" {
		body["name"] = name
	}
	_, err = c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "snapshots"), body: body, key: key}, &s)
	return s, err
}

// Snapshots returns all of a sandbox, or all there are for "", newest first, page
// after page.
func (c *Client) Snapshots(ctx context.Context, source cube.SandboxID) ([]Snapshot, error) {
	q := url.Values{"limit": {"100"}}
	if source != "" {
		q.Set("sandboxID", string(source))
	}
	return pages[Snapshot](ctx, c, "/snapshots", q)
}

// Template is what sandboxes are made from.
type Template struct {
	ID        cube.ImageID `json:"templateID"`
	Names     []string     `json:"aliases"`
	CPUs      int          `json:"cpuCount,omitempty"`
	MemoryMiB int64        `json:"memoryMB,omitempty"`
	CreatedAt *time.Time   `json:"createdAt,omitempty"`
	Space
}

// Templates returns all.
func (c *Client) Templates(ctx context.Context) ([]Template, error) {
	return pages[Template](ctx, c, "/templates", url.Values{})
}

// DeleteImage deletes a template or snapshot, by id or name.
func (c *Client) DeleteImage(ctx context.Context, idOrName string) error {
	_, err := c.do(ctx, call{method: http.MethodDelete, path: "/templates/" + url.PathEscape(idOrName)}, nil)
	return err
}

// Verified is what reading an image whole has found.
type Verified struct {
	ID cube.ImageID `json:"imageID"`
	// Bytes is its size on disk.
	Bytes   int64 `json:"bytes"`
	Durable bool  `json:"durable"`
}

// VerifyImage has the server read a template or snapshot whole, by id or name.
// cube.ErrCorrupt where it is not what was saved.
func (c *Client) VerifyImage(ctx context.Context, idOrName string) (v Verified, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: "/images/" + url.PathEscape(idOrName) + "/verify"}, &v)
	return v, err
}

// Health is what a server says of itself to anybody.
type Health struct {
	Status string `json:"status"`
	// Sandboxes is how many there are.
	Sandboxes int `json:"sandboxes"`
}

// Health asks whether the server answers. No key is needed.
func (c *Client) Health(ctx context.Context) (h Health, err error) {
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/health"}, &h)
	return h, err
}
