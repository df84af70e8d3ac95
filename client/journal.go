package client

import (
	"context"
	"net/http"
	"time"

	cube "cubesandbox"
)

// Plan is a verb that is under way, and how far.
type Plan struct {
	ID   string    `json:"planID"`
	Verb cube.Verb `json:"verb"`
	// Sandbox is whom it is about, Image what it writes, reads or deletes, and Made the
	// copies of a clone.
	Sandbox cube.SandboxID   `json:"sandboxID,omitempty"`
	Image   cube.ImageID     `json:"imageID,omitempty"`
	Made    []cube.SandboxID `json:"made,omitempty"`
	BeganAt time.Time        `json:"beganAt"`
	// Ahead: a start of the server would finish it; else it would take it back.
	Ahead bool   `json:"ahead"`
	Steps []Step `json:"steps"`
}

// Step is one of a plan.
type Step struct {
	Name string `json:"name"`
	Done bool   `json:"done"`
}

// Plans returns what is under way, the oldest first.
func (c *Client) Plans(ctx context.Context) ([]Plan, error) {
	all := []Plan{}
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/plans"}, &all)
	return all, err
}

// Collect has the server free what nothing needs, and returns what that was; with dry
// it is only named.
func (c *Client) Collect(ctx context.Context, dry bool) ([]cube.Garbage, error) {
	all := []cube.Garbage{}
	_, err := c.do(ctx, call{method: http.MethodPost, path: "/gc", body: map[string]any{"dryRun": dry}}, &all)
	return all, err
}
