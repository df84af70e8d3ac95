package sqlite

import (
	"testing"

	cube "cubesandbox"
	"cubesandbox/storetest"
)

func openStore(path string) (cube.Store, error) { return Open(path) }

func TestMain(m *testing.M) { storetest.Main(m, openStore) }

func TestSQLiteKeepsTheContract(t *testing.T) { storetest.Run(t, openStore) }

func TestAKillLosesNothingThatWasAcknowledged(t *testing.T) { storetest.Killed(t, openStore) }
