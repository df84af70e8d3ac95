package sqlite

import (
	"fmt"
	"os"
	"testing"

	cube "cubesandbox"
	"cubesandbox/storetest"
)

func openStore(path string) (cube.Store, error) { return Open(path) }

func TestMain(m *testing.M) {
	if path := os.Getenv(childVariable); path != "" {
		fmt.Println(applyOnce(path))
		os.Exit(1) // it was to be killed
	}
	storetest.Main(m, openStore)
}

func TestSQLiteKeepsTheContract(t *testing.T) { storetest.Run(t, openStore) }

func TestAKillLosesNothingThatWasAcknowledged(t *testing.T) { storetest.Killed(t, openStore) }
