package filesystem

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// valid makes a text of a user's fit for a message, whose texts are UTF-8. Each run of
// other bytes becomes one U+FFFD: such a name is seen, but cannot be given back to us.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Times that a message can carry; files may have others.
var (
	earliest = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
)

// timestamp is a time of a file, or the nearest to it that a message can carry.
func timestamp(t time.Time) *timestamppb.Timestamp {
	switch {
	case t.Before(earliest):
		t = earliest
	case t.After(latest):
		t = latest
	}
	return timestamppb.New(t)
}
