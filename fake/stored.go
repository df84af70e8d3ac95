package fake

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	cube "cubesandbox"
)

// What is stored shares nothing with who stored it or is given it, and its times are in
// UTC.

func storedRecord(r cube.Record) cube.Record {
	r.Identity.Env, r.Metadata = maps.Clone(r.Identity.Env), maps.Clone(r.Metadata)
	r.Network, r.MCP = slices.Clone(r.Network), slices.Clone(r.MCP)
	if r.AllowInternet != nil {
		allow := *r.AllowInternet
		r.AllowInternet = &allow
	}
	if r.End != nil {
		end := *r.End
		end.At = storedTime(end.At)
		r.End = &end
	}
	r.EndAt, r.StartedAt = storedTime(r.EndAt), storedTime(r.StartedAt)
	r.ChangedAt, r.RecoveredAt = storedTime(r.ChangedAt), storedTime(r.RecoveredAt)
	return r
}

func storedSnapshot(s cube.Snapshot) cube.Snapshot {
	s.Env, s.CreatedAt = maps.Clone(s.Env), storedTime(s.CreatedAt)
	return s
}

func storedPlan(p cube.Plan) cube.Plan {
	p.Made, p.BeganAt = slices.Clone(p.Made), storedTime(p.BeganAt)
	return p
}

func storedAnswer(a cube.Answer) cube.Answer {
	a.Sandboxes, a.At = slices.Clone(a.Sandboxes), storedTime(a.At)
	return a
}

func storedTime(t time.Time) time.Time { return t.Round(0).UTC() }

// storable reports a batch that no store can take: what was given as JSON is none.
func storable(b cube.Batch) error {
	for _, r := range b.Sandboxes {
		for _, raw := range []json.RawMessage{r.Network, r.MCP} {
			if len(raw) > 0 && !json.Valid(raw) {
				return fmt.Errorf("sandbox %s: %q is no JSON: %w", r.ID, raw, cube.ErrInvalid)
			}
		}
	}
	return nil
}
