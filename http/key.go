package http

import (
	"strings"
)

// keyHeader is how a client makes a call that it may have to send again: the same key
// with the same request is answered by what the first one made.
const keyHeader = "Idempotency-Key"

// maxKey bounds it, in bytes.
const maxKey = 255

// key reads the idempotency key of a call; empty where it has none.
func (c *call) key() (string, error) {
	given := c.r.Header.Values(keyHeader)
	if len(given) == 0 {
		return "", nil
	}
	k := given[0]
	invisible := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(given) > 1 || k == "" || len(k) > maxKey || strings.ContainsFunc(k, invisible) {
		return "", invalid("validation error: header %s: want one, of 1 to %d visible ASCII characters", keyHeader, maxKey)
	}
	return k, nil
}
