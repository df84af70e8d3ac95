// Package output has the tests of output that is taken up again: a command writes numbered
// lines, and a client that resumes by offset reads them through snapshots, disconnects,
// pauses, resumes and rollbacks.
//
// make test and make check have a short form each, make soak writes 1 GB. CUBE_SEED chooses
// other moments.
package output

import (
	"context"
	"os"
	"testing"

	"cubesandbox/e2e/lab"
)

// s is the server of all tests in this package.
var s *lab.Server

func TestMain(m *testing.M) { os.Exit(lab.Main(m, &s, ready)) }

// ready uses everything once, so that what is opened at first use looks like no leak.
func ready(ctx context.Context) error {
	return s.Warm(ctx, "base")
}
