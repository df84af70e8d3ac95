package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	cube "cubesandbox"
)

// answers is the table of answers, its columns in the order of answerValues and
// scanAnswer.
var answers = table{"answers", []string{"key", "request", "sandboxes", "image", "at"}}

func answerValues(a cube.Answer) []any {
	return []any{a.Key, a.Request, listJSON(a.Sandboxes), string(a.Image), nanos(a.At)}
}

func scanAnswer(scan func(...any) error) (a cube.Answer, err error) {
	var made sql.RawBytes
	var at int64
	if err := scan(&a.Key, &a.Request, &made, (*string)(&a.Image), &at); err != nil {
		return cube.Answer{}, err
	}
	a.At = moment(at)
	if a.Sandboxes, err = listOf(made); err != nil {
		return a, fmt.Errorf("answer to %q: %w", a.Key, err)
	}
	return a, nil
}

// Answers implements cube.Store.
func (s *Store) Answers(ctx context.Context) ([]cube.Answer, error) {
	all, err := list(ctx, s, s.answers.all, scanAnswer)
	slices.SortFunc(all, func(a, b cube.Answer) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Key, b.Key))
	})
	return all, err
}
