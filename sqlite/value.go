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
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // a map of strings has a JSON form
	}
	return string(b)
}

// mapOf is the map of a column; nil for none.
func mapOf(b []byte) (map[string]string, error) {
	if b == nil {
		return nil, nil
	}
	m := map[string]string{}
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("the record cannot be read: %w: %w", cube.ErrCorrupt, err)
	}
	return m, nil
}
