package cube_test

import (
	"strings"
	"testing"

	cube "cubesandbox"
)

// TestTheNameOfASandboxInsideIsNeverTakenForAnAddress: of random ids one in 281 would
// be.
func TestTheNameOfASandboxInsideIsNeverTakenForAnAddress(t *testing.T) {
	for range 20_000 {
		id := cube.NewSandboxID()
		if _, err := cube.ParseSandboxID(string(id)); err != nil {
			t.Fatal(err)
		}
		if strings.Trim(id.Hostname(), "0123456789") == "" {
			t.Fatalf("sandbox %s is called %s inside", id, id.Hostname())
		}
	}
}
