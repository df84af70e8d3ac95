package clients

import "testing"

// What users of E2B have reported, and is not so here.

// TestAfterADeadlineNothingHoldsThePort (E2B 1031, 1074): the whole tree has ended, for
// good, and what has no deadline goes on without whoever started it.
func TestAfterADeadlineNothingHoldsThePort(t *testing.T) { runReport(t, "deadline") }

// TestWhatIsAnsweredIsSoAtOnce (E2B 582, 1005, 1130): made, paused, resumed and killed.
func TestWhatIsAnsweredIsSoAtOnce(t *testing.T) { runReport(t, "at_once") }

// TestAnIdleStreamSaysThatItIsThere (E2B 927, 1128), in the form of the Connect
// protocol, whose order of messages and errors are looked at without a client.
func TestAnIdleStreamSaysThatItIsThere(t *testing.T) { runReport(t, "keepalive") }

// TestWhatWasWrittenAndChosenHoldsThroughThreePauses (E2B 884, 875, 1104): whoever pauses.
func TestWhatWasWrittenAndChosenHoldsThroughThreePauses(t *testing.T) { runReport(t, "lifecycle") }

func runReport(t *testing.T, name string) {
	runProgram(t, in("reports", newestJS), name, environment(t), nil)
}
