package output

import (
	"strconv"
	"testing"
	"time"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// counted counts what is written to it.
type counted int64

func (c *counted) Write(b []byte) (int, error) {
	*c += counted(len(b))
	return len(b), nil
}

// TestAFloodOfOutputComesWhole: nothing of it is lost on the way to a client that reads.
// How fast it came is in the log.
func TestAFloodOfOutputComesWhole(t *testing.T) {
	s.Guard(t)
	b, err := s.API.Create(t.Context(), client.NewSandbox{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err != nil {
		t.Fatal(err)
	}
	size := lab.Pick[int64](64, 64, 1024) << 20
	var got counted
	began := time.Now()
	exit, err := g.Run(t.Context(), client.Command{
		Argv: []string{"head", "-c", strconv.FormatInt(size, 10), "/dev/zero"}, Stdout: &got,
	})
	took := time.Since(began)
	if err != nil || exit.Code != 0 || int64(got) != size {
		t.Fatalf("got %d of %d bytes, %+v, %v", got, size, exit, err)
	}
	t.Logf("%d MiB in %v: %.0f MiB/s", size>>20, took.Round(time.Millisecond), float64(size>>20)/took.Seconds())
}
