package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	cube "cubesandbox"
)

// Ended is a sandbox that is no more.
type Ended struct {
	ID        cube.SandboxID   `json:"sandboxID"`
	Template  string           `json:"templateID"`
	Alias     string           `json:"alias,omitempty"`
	StartedAt time.Time        `json:"startedAt"`
	EndedAt   time.Time        `json:"endedAt"`
	Reason    cube.DeathReason `json:"reason"`
	// Detail is one line for a person.
	Detail string `json:"detail,omitempty"`
	// Recoverable: Recover can bring it back, from the snapshot Recovery.
	Recoverable bool         `json:"recoverable"`
	Recovery    cube.ImageID `json:"recoverySnapshotID,omitempty"`
	// Returning: that is being done already, by itself.
	Returning bool `json:"returning,omitempty"`
}

// Ended returns the sandboxes that have ended and are not forgotten, the last first; the
// server bounds how many, at 1000.
func (c *Client) Ended(ctx context.Context) ([]Ended, error) { return c.ended(ctx, nil) }

// Recoverable returns those of Ended that can be brought back.
func (c *Client) Recoverable(ctx context.Context) ([]Ended, error) {
	return c.ended(ctx, url.Values{"recoverable": {"true"}})
}

func (c *Client) ended(ctx context.Context, query url.Values) ([]Ended, error) {
	all := []Ended{}
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/sandboxes/ended", query: query}, &all)
	return all, err
}

// Recover brings a sandbox that has died back from its newest snapshot, under its id.
// cube.ErrConflict when it runs, cube.ErrNotFound when there is no way back.
func (c *Client) Recover(ctx context.Context, id cube.SandboxID) (s Sandbox, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "recover")}, &s)
	return s, err
}
