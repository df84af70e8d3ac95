package service

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	cube "cubesandbox"
)

// Get implements cube.Service.
func (s *Service) Get(_ context.Context, id cube.SandboxID) (cube.Record, error) {
	b, err := s.find(id)
	if err != nil {
		return cube.Record{}, err
	}
	r, there := b.view()
	if !there {
		return cube.Record{}, s.killed(b)
	}
	return r, nil
}

// view is the record, unless somebody is killing the sandbox.
func (b *box) view() (r cube.Record, there bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r = b.rec
	r.EndAt, r.Unhealthy = b.end(), b.unhealthy()
	return r, !b.doomed && !b.gone
}

// seen is what a phase looks like from outside.
func seen(p cube.Phase) cube.Phase {
	switch p {
	case cube.PhasePausing, cube.PhasePaused, cube.PhaseResuming, cube.PhaseRecovering:
		return cube.PhasePaused
	default:
		return cube.PhaseRunning
	}
}

// List implements cube.Service.
func (s *Service) List(_ context.Context, q cube.SandboxQuery) (cube.SandboxPage, error) {
	after, err := parseCursor(q.Cursor, !q.Ascending)
	if err != nil {
		return cube.SandboxPage{}, err
	}
	templates, err := s.templateFilter(q.Template)
	if err != nil {
		return cube.SandboxPage{}, err
	}
	page := cube.SandboxPage{Sandboxes: make([]cube.Record, 0, s.expect(q))}
	for _, b := range s.ordered(!q.Ascending) {
		r, at, there := b.glance(q, templates)
		if !there {
			continue
		}
		if seen(at) == cube.PhaseRunning {
			page.Running++
		}
		// The count goes on behind the end of the page.
		c := cursor{b.started, string(b.id), !q.Ascending}
		switch {
		case page.Next != "" || after != nil && c.compare(*after) <= 0:
		case q.Limit > 0 && len(page.Sandboxes) == q.Limit:
			last := page.Sandboxes[q.Limit-1]
			page.Next = cursor{last.StartedAt, string(last.ID), !q.Ascending}.String()
		default:
			page.Sandboxes = append(page.Sandboxes, *r)
		}
	}
	return page, nil
}

// expect is how many entries a page may have.
func (s *Service) expect(q cube.SandboxQuery) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if q.Limit > 0 {
		return min(q.Limit, len(s.boxes))
	}
	return len(s.boxes)
}

// glance returns the record of a sandbox that fits, without copying what does not.
func (b *box) glance(q cube.SandboxQuery, template func(cube.ImageID, string) bool) (r *cube.Record, p cube.Phase, fit bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.doomed || b.gone || !fits(&b.rec, q) || template != nil && !template(b.rec.Template, b.rec.Alias) {
		return nil, "", false
	}
	if end, sick := b.end(), b.unhealthy(); sick != nil || !end.Equal(b.rec.EndAt) {
		c := b.rec
		c.EndAt, c.Unhealthy = end, sick
		return &c, c.Phase, true
	}
	return b.seenAs(), b.rec.Phase, true
}

func fits(r *cube.Record, q cube.SandboxQuery) bool {
	if len(q.Phases) > 0 && !slices.Contains(q.Phases, seen(r.Phase)) {
		return false
	}
	for k, v := range q.Metadata {
		if got, ok := r.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return q.StartedAfter.IsZero() || !r.StartedAt.Truncate(time.Microsecond).Before(q.StartedAfter)
}

// templateFilter says which records were made from a template; nil for all.
func (s *Service) templateFilter(idOrName string) (func(cube.ImageID, string) bool, error) {
	if idOrName == "" {
		return nil, nil
	}
	if id, err := cube.ParseImageID(idOrName); err == nil {
		return func(t cube.ImageID, _ string) bool { return t == id }, nil
	}
	if strings.Contains(idOrName, ":") {
		return nil, fmt.Errorf("template %q: give the name without a tag: %w", idOrName, cube.ErrInvalid)
	}
	name := bare(idOrName)
	return func(_ cube.ImageID, alias string) bool { return alias == name }, nil
}

// cursor is a place in a list: behind the entry that it names.
type cursor struct {
	at   time.Time
	id   string
	desc bool // newest first
}

func (c cursor) compare(d cursor) int {
	order := cmp.Or(c.at.Compare(d.at), cmp.Compare(c.id, d.id))
	if c.desc {
		return -order
	}
	return order
}

func (c cursor) String() string {
	dir := "asc"
	if c.desc {
		dir = "desc"
	}
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%s.%s", c.at.UnixNano(), c.id, dir))
}

// parseCursor reads what String wrote, for the same order.
func parseCursor(s string, desc bool) (*cursor, error) {
	if s == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	parts := strings.Split(string(b), ".")
	if err != nil || len(parts) != 3 {
		//lint:ignore ST1005 these are E2B's words
		return nil, fmt.Errorf("Invalid next token %q: take it from the answer before: %w", s, cube.ErrInvalid)
	}
	ns, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || (parts[2] == "desc") != desc {
		//lint:ignore ST1005 these are E2B's words
		return nil, fmt.Errorf("Invalid next token %q: it is of another list or order: %w", s, cube.ErrInvalid)
	}
	return &cursor{time.Unix(0, ns), parts[1], desc}, nil
}

// cut takes the page behind a cursor out of an ordered list, and says where the
// next one begins.
func cut[T any](all []T, at func(T) cursor, after *cursor, limit int) (page []T, next string) {
	if after != nil {
		i, found := slices.BinarySearchFunc(all, *after, func(x T, c cursor) int { return at(x).compare(c) })
		if found {
			i++
		}
		all = all[i:]
	}
	if limit <= 0 || len(all) <= limit {
		return all, ""
	}
	return all[:limit], at(all[limit-1]).String()
}
