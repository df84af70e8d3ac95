package sqlite

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	cube "cubesandbox"
)

// farthest is the last moment that has a number of nanoseconds since 1970, in 2262.
var farthest = time.Unix(0, math.MaxInt64)

// nanos are those since 1970; 0 for the zero time. What ends after 2262 ends then.
func nanos(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.After(farthest):
		return math.MaxInt64
	}
	return t.UnixNano()
}

func moment(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos).UTC()
}

// text is JSON for its column; nil for none.
func text(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	return string(raw)
}

// jsonOf is a map for its column; nil for none.
func jsonOf(m map[string]string) any {
	if m == nil {
		return nil
	}
	return encoded(m)
}

// listJSON is a list of ids for its column; nil for none.
func listJSON(ids []cube.SandboxID) any {
	if ids == nil {
		return nil
	}
	return encoded(ids)
}

func encoded(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // what is of strings alone has a JSON form
	}
	return string(b)
}

// mapOf is the map of a column; nil for none.
func mapOf(b []byte) (map[string]string, error) { return decoded(b, map[string]string{}) }

// listOf is the list of a column; nil for none.
func listOf(b []byte) ([]cube.SandboxID, error) { return decoded(b, []cube.SandboxID{}) }

// decoded is the value of a column of JSON, empty before; nil for NULL.
func decoded[T any](b []byte, empty T) (none T, err error) {
	if b == nil {
		return none, nil
	}
	if err := json.Unmarshal(b, &empty); err != nil {
		return none, fmt.Errorf("the record cannot be read: %w: %w", cube.ErrCorrupt, err)
	}
	return empty, nil
}
