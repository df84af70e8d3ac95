package differential

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"cubesandbox/e2e/differential/guestapi"
)

// difference is where a box is not as the model.
type difference struct {
	box    string
	part   string // the first that differs
	offset int64  // of its first byte that differs; -1: its length, or its being there
	detail string
	others []string // parts that differ, too
}

func (d *difference) Error() string {
	text := fmt.Sprintf("%s differs from the model in %s, %s", d.box, d.part, d.detail)
	if len(d.others) > 0 {
		text += "; and in " + strings.Join(d.others, ", ")
	}
	return text
}

// errApart says that a box which was given other commands is as the model.
var errApart = errors.New("a box that was given other commands is as the model")

// depth is how thoroughly a box is read.
type depth int

// The depths: what is quickly read; all parts; all parts by every way.
const (
	quickly depth = iota
	all
	everyWay
)

// digests reads boxes, each as thoroughly as is said.
func digests(ctx context.Context, boxes []*box, how func(*box) depth) ([][]guestapi.Part, error) {
	answers, err := askAll(ctx, boxes, func(b *box) guestapi.Request {
		return guestapi.Request{Do: guestapi.Digest, Deep: how(b) >= all, Ways: how(b) == everyWay}
	})
	if err != nil {
		return nil, err
	}
	out := make([][]guestapi.Part, len(boxes))
	for i, a := range answers {
		if len(a.Disagree) > 0 {
			err = errors.Join(err, fmt.Errorf("%s can be read in two ways that do not agree: %s", boxes[i].role, strings.Join(a.Disagree, "; ")))
		}
		out[i] = a.Parts
	}
	return out, err
}

// each is one depth for all.
func each(d depth) func(*box) depth { return func(*box) depth { return d } }

// differing are the names of the parts that are not the same in both.
func differing(got, want []guestapi.Part) (names []string) {
	index := map[string]guestapi.Part{}
	for _, p := range got {
		index[p.Name] = p
	}
	for _, p := range want {
		if index[p.Name] != p {
			names = append(names, p.Name)
		}
		delete(index, p.Name)
	}
	for _, p := range got {
		if _, left := index[p.Name]; left {
			names = append(names, p.Name)
		}
	}
	return names
}

// compare looks where a box is not as the model, whose digests are given.
func compare(ctx context.Context, b, model *box, got, want []guestapi.Part) error {
	names := differing(got, want)
	if len(names) == 0 {
		return nil
	}
	d, err := locate(ctx, b, model, names[0])
	if err != nil {
		return fmt.Errorf("%s differs from the model in %s: %w", b.role, strings.Join(names, ", "), err)
	}
	d.others = names[1:]
	return d
}

// locate finds the first byte of a part that differs.
func locate(ctx context.Context, b, model *box, part string) (*difference, error) {
	d := &difference{box: b.role, part: part, offset: -1}
	both := []*box{b, model}
	answers, err := askAll(ctx, both, func(*box) guestapi.Request { return guestapi.Request{Do: guestapi.Chunks, Part: part} })
	if err != nil {
		return nil, err
	}
	got, want := answers[0].Sums, answers[1].Sums
	chunk := 0
	for chunk < min(len(got), len(want)) && got[chunk] == want[chunk] {
		chunk++
	}
	from := int64(chunk) * guestapi.ChunkSize
	if chunk == min(len(got), len(want)) {
		d.detail = fmt.Sprintf("which has %d chunks of %d bytes, want %d", len(got), guestapi.ChunkSize, len(want))
		return d, nil
	}
	answers, err = askAll(ctx, both, func(*box) guestapi.Request {
		return guestapi.Request{Do: guestapi.Bytes, Part: part, Offset: from}
	})
	if err != nil {
		return nil, err
	}
	g, w := answers[0].Bytes, answers[1].Bytes
	i := 0
	for i < min(len(g), len(w)) && g[i] == w[i] {
		i++
	}
	if i == min(len(g), len(w)) {
		d.detail = fmt.Sprintf("in the chunk at %d: of other length (%d bytes, want %d), or other pages of it can be loaded", from, len(g), len(w))
		return d, nil
	}
	d.offset = from + int64(i)
	d.detail = fmt.Sprintf("at offset %d: got %x, want %x", d.offset, g[i:min(i+16, len(g))], w[i:min(i+16, len(w))])
	return d, nil
}

// sameResults compares what an operation said.
func sameResults(boxes []*box, answers []guestapi.Answer, model guestapi.Answer, apart *box) error {
	for i, b := range boxes {
		if b != apart && answers[i].Result != model.Result {
			return fmt.Errorf("%s: the operation gives %q, in the model %q", b.role, answers[i].Result, model.Result)
		}
	}
	return nil
}
