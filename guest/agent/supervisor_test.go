package agent

import (
	"errors"
	"testing"

	"cubesandbox/guest/spawn"
)

func TestWithoutAnInitForLongTheAgentSaysThatItCanStartNoProgram(t *testing.T) {
	s := newSupervisor(newEventLog())
	says := func(when string, late bool, gone string) {
		t.Helper()
		if l, g := s.late(); l != late || g != gone {
			t.Errorf("%s: late is %t, %q; want %t, %q", when, l, g, late, gone)
		}
	}
	says("at the beginning", false, "")
	s.present(&spawn.Init{})
	says("with one", false, "")
	s.absent(nil)
	says("when it has just ended", false, "")
	s.ended = s.ended.Add(-absence)
	says("after a while without one", true, "another has not begun yet")
	s.present(&spawn.Init{})
	s.absent(errors.New("no room"))
	says("when none could be started", true, "no room")
	s.present(&spawn.Init{})
	says("with another", false, "")
}
