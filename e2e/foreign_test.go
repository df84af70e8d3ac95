package e2e

import (
	"errors"
	"strings"
	"testing"

	cube "cubesandbox"
)

// TestAnImageThatCannotBeRestoredHereIsRefusedWithTheReason: by create and by
// rollback, whose sandbox goes on.
func TestAnImageThatCannotBeRestoredHereIsRefusedWithTheReason(t *testing.T) {
	img, err := l.Images.Image(l.Witness)
	if err != nil || len(img.CPU) < 10 {
		t.Fatalf("the image of the witness names the features %q, %v", img.CPU, err)
	}
	for _, c := range []struct {
		name, what, by string
		says, not      []string
	}{
		{
			"made by an engine that is not installed", `("engine": *")[^"]*"`, `${1}another-engine"`,
			[]string{"another-engine", l.Engine.Version(), "not installed"}, nil,
		},
		{
			"made by something that is no name of an engine", `("engine": *")[^"]*"`, `${1}../engines/x"`,
			[]string{"../engines/x", "not installed"}, nil,
		},
		{
			"made with processor features that are lacking here", `"cpu": *\[`, `"cpu": ["no-a", "no-b", "no-c", "no-d", "no-e", "no-f",`,
			[]string{"no-a, no-b, no-c, no-d, no-e"}, []string{"no-f", img.CPU[0]},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.Guard(t)
			b := newBound(t)
			foreign := save(t, b.id)
			b.life = l.Check(t, b.id)
			l.Forge(t, foreign, c.what, c.by)
			_, created := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: foreign})
			_, rolled := l.Engine.Rollback(t.Context(), b.id, foreign)
			for verb, err := range map[string]error{"create": created, "rollback": rolled} {
				if !errors.Is(err, cube.ErrIncompatible) {
					t.Errorf("%s: got %v", verb, err)
					continue
				}
				for _, word := range c.says {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("%s: %v: does not say %q", verb, err, word)
					}
				}
				for _, word := range c.not {
					if strings.Contains(err.Error(), word) {
						t.Errorf("%s: %v: says %q", verb, err, word)
					}
				}
			}
			b.asBefore(t)
		})
	}
}
