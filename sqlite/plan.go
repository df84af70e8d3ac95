package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	cube "cubesandbox"
)

// plans is the table of plans, its columns in the order of planValues and scanPlan.
var plans = table{"plans", []string{"id", "verb", "sandbox", "image", "made", "key", "request", "began_at"}}

func planValues(p cube.Plan) []any {
	return []any{p.ID, string(p.Verb), string(p.Sandbox), string(p.Image), listJSON(p.Made), p.Key, p.Request, nanos(p.BeganAt)}
}

func scanPlan(scan func(...any) error) (p cube.Plan, err error) {
	var made sql.RawBytes
	var beganAt int64
	if err := scan(&p.ID, (*string)(&p.Verb), (*string)(&p.Sandbox), (*string)(&p.Image), &made, &p.Key, &p.Request, &beganAt); err != nil {
		return cube.Plan{}, err
	}
	p.BeganAt = moment(beganAt)
	if p.Made, err = listOf(made); err != nil {
		return p, fmt.Errorf("plan %s: %w", p.ID, err)
	}
	return p, nil
}

// Plans implements cube.Store.
func (s *Store) Plans(ctx context.Context) ([]cube.Plan, error) {
	all, err := list(ctx, s, s.plans.all, scanPlan)
	slices.SortFunc(all, func(a, b cube.Plan) int {
		return cmp.Or(a.BeganAt.Compare(b.BeganAt), cmp.Compare(a.ID, b.ID))
	})
	return all, err
}
