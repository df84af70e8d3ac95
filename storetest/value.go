package storetest

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"time"

	cube "cubesandbox"
)

// generator makes values with anything in their fields. It goes by reflection, so
// that a field that is added to a record tomorrow is tried too.
type generator struct{ *rand.Rand }

// texts are what strings are put together from: UTF-8, like all that comes in.
var texts = []string{"", "a", "ü", "\x00", "\n", `"`, `\`, "<&>", "\u2028", "\U0001f980", "'; DROP TABLE", "${A}", "\ufffd"}

func (g generator) record() cube.Record {
	var r cube.Record
	g.fill(reflect.ValueOf(&r).Elem())
	r.Unhealthy = nil // it is kept by no store
	r.ID = cube.NewSandboxID()
	return r
}

func (g generator) snapshot() cube.Snapshot {
	var s cube.Snapshot
	g.fill(reflect.ValueOf(&s).Elem())
	s.ID = cube.NewSnapshotID()
	return s
}

func (g generator) plan() cube.Plan {
	var p cube.Plan
	g.fill(reflect.ValueOf(&p).Elem())
	p.ID = cube.NewPlanID()
	return p
}

func (g generator) answer() cube.Answer {
	var a cube.Answer
	g.fill(reflect.ValueOf(&a).Elem())
	a.Key = g.text() + cube.NewPlanID()
	return a
}

// fill puts something into v; for types that a record does not have it panics.
func (g generator) fill(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(g.time()))
		return
	case time.Duration:
		v.SetInt([]int64{0, int64(cube.NeverTimeout), 1, math.MaxInt64, g.Int64()}[g.IntN(5)])
		return
	case json.RawMessage:
		v.Set(reflect.ValueOf(g.object()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(g.text())
	case reflect.Bool:
		v.SetBool(g.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt([]int64{0, 1, math.MaxInt64, g.Int64()}[g.IntN(4)])
	case reflect.Uint64:
		v.SetUint(g.Uint64() >> 1)
	case reflect.Pointer:
		if g.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			g.fill(v.Elem())
		}
	case reflect.Map:
		g.fillMap(v)
	case reflect.Slice:
		g.fillSlice(v)
	case reflect.Struct:
		for i := range v.NumField() {
			g.fill(v.Field(i))
		}
	default:
		panic("storetest cannot make a " + v.Type().String())
	}
}

// fillMap leaves it nil, or empty, or puts something in.
func (g generator) fillMap(v reflect.Value) {
	n := g.IntN(5) - 1
	if n < 0 {
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for range n {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		g.fill(key)
		g.fill(value)
		v.SetMapIndex(key, value)
	}
}

// fillSlice leaves it nil, or empty, or puts something in.
func (g generator) fillSlice(v reflect.Value) {
	n := g.IntN(5) - 1
	if n < 0 {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		g.fill(v.Index(i))
	}
}

func (g generator) text() (s string) {
	for range g.IntN(5) {
		s += texts[g.IntN(len(texts))]
	}
	return s
}

// time is none, now, or a nanosecond from 1970 to 2262, anywhere on earth.
func (g generator) time() time.Time {
	switch g.IntN(4) {
	case 0:
		return time.Time{}
	case 1:
		return time.Now() // with a monotonic reading
	}
	zone := time.FixedZone("", (g.IntN(27)-12)*3600)
	return time.Unix(0, 1+g.Int64N(math.MaxInt64)).In(zone)
}

func (g generator) object() json.RawMessage {
	if g.IntN(3) == 0 {
		return nil
	}
	b, err := json.MarshalIndent(map[string]any{g.text(): g.text(), "n": g.IntN(10), "l": []any{nil, true, map[string]any{}}}, "", " ")
	if err != nil {
		panic(err) // of texts and numbers it can be made
	}
	return b
}

// same checks that got is what was put: times to the nanosecond and in UTC, JSON
// as JSON (its spaces are nobody's), and everything else exactly, nil and empty maps
// and lists told apart.
func (x *X) same(got, want any) {
	x.Helper()
	w := reflect.New(reflect.TypeOf(want)).Elem()
	w.Set(reflect.ValueOf(want))
	g := reflect.New(reflect.TypeOf(got)).Elem()
	g.Set(reflect.ValueOf(got))
	normalize(w, true)
	normalize(g, false)
	if !reflect.DeepEqual(g.Interface(), w.Interface()) {
		x.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// normalize changes JSON to its canonical form and, where times is true, times to
// the form in which a store gives them back. What pointers lead to is copied first.
func normalize(v reflect.Value, times bool) {
	switch value := v.Interface().(type) {
	case time.Time:
		if times {
			v.Set(reflect.ValueOf(value.Round(0).UTC()))
		}
		return
	case json.RawMessage:
		v.Set(reflect.ValueOf(canonical(value)))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c := reflect.New(v.Type().Elem())
			c.Elem().Set(v.Elem())
			normalize(c.Elem(), times)
			v.Set(c)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			normalize(v.Field(i), times)
		}
	}
}

// canonical is the form of JSON that does not depend on who wrote it.
func canonical(raw json.RawMessage) json.RawMessage {
	var value any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&value) != nil {
		return raw
	}
	b, err := json.Marshal(value)
	if err != nil {
		return raw
	}
	return b
}
