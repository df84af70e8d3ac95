package abuse

import (
	"syscall"
	"testing"
	"time"

	"cubesandbox/client"
)

// TestASandboxWhoseAgentIsStoppedIsUnhealthyUntilItGoesOnOrIsRolledBack: whatever should
// stop an agent, the server says so to those who look.
func TestASandboxWhoseAgentIsStoppedIsUnhealthyUntilItGoesOnOrIsRolledBack(t *testing.T) {
	s.Guard(t)
	beside(t)
	// Only a rollback takes back what was written.
	written := map[string]string{"goes on": "before", "is rolled back": "after"}
	for name, mend := range map[string]func(t *testing.T, b client.Sandbox, snapshot string){
		"goes on": func(t *testing.T, b client.Sandbox, _ string) {
			noError(t, agent(t, b)(syscall.SIGCONT), "let its agent go on")
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for began := time.Now(); get(t, b.ID).Unhealthy != nil; <-tick.C { // nobody asks it but the server
				if time.Since(began) > 3*within {
					t.Fatalf("its agent goes on since %v, and it still is unhealthy", time.Since(began))
				}
			}
		},
		"is rolled back": func(t *testing.T, b client.Sandbox, snapshot string) {
			noError(t, s.API.Rollback(t.Context(), b.ID, snapshot), "roll it back")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := s.API.Create(t.Context(), client.NewSandbox{Template: template})
			noError(t, err, "make a sandbox")
			noError(t, write(t.Context(), b, "before"), "write to it")
			snap, err := s.API.Snapshot(t.Context(), b.ID, "")
			noError(t, err, "save it")
			noError(t, write(t.Context(), b, written[name]), "write to it")
			noError(t, agent(t, b)(syscall.SIGSTOP), "stop its agent")
			if got := look(t, b, "guest agent failed"); got != unhealthy {
				t.Errorf("the outcome is %d, want %d", got, unhealthy)
			}
			mend(t, b, string(snap.ID))
			whole(t, b)
		})
	}
}

// agent sends signals to the agent of a sandbox.
func agent(t *testing.T, b client.Sandbox) func(syscall.Signal) error {
	t.Helper()
	life, err := s.Life(t.Context(), b.ID)
	noError(t, err, "its life")
	return s.Agent(life)
}
