package agent

import (
	"regexp"
	"testing"
)

func TestMachineIDsFollowFromTheSandboxAlone(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$`)
	a, b := machineID("00000000000000000000000000000001"), machineID("00000000000000000000000000000002")
	if a == b || !form.MatchString(a) || a != machineID("00000000000000000000000000000001") {
		t.Errorf("machine ids %s and %s", a, b)
	}
}

func TestBootIDsAreOfTheKernelsFormAndNeverTheSame(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 100 {
		id := newBootID()
		if seen[id] || !form.MatchString(id) {
			t.Errorf("boot id %s", id)
		}
		seen[id] = true
	}
}
