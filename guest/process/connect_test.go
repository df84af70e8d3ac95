package process

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"cubesandbox/guest/envdpb/process"
	"cubesandbox/guest/envdpb/process/processconnect"

	"connectrpc.com/connect"
)

// connectTo follows a process with headers, given as name and value in turn.
func connectTo(t *testing.T, c processconnect.ProcessClient, pid uint32, headers ...string) (*connect.ServerStreamForClient[process.ConnectResponse], *heard) {
	t.Helper()
	req := connect.NewRequest(&process.ConnectRequest{Process: selector(pid)})
	for i := 0; i < len(headers); i += 2 {
		req.Header().Set(headers[i], headers[i+1])
	}
	s, err := c.Connect(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return s, &heard{offset: -1}
}

// heard is what came over one stream.
type heard struct {
	events
	offset  int64 // of the first data; -1 for none
	dropped uint64
	lives   string
}

func (h *heard) all(s *connect.ServerStreamForClient[process.ConnectResponse]) *heard {
	next := int64(-1)
	for s.Receive() {
		e := s.Msg().Event
		h.add(e)
		h.dropped += e.GetDropped().GetBytes()
		if d := e.GetData(); d != nil {
			if at := int64(d.GetOffset()); next >= 0 && at != next {
				h.err = fmt.Errorf("data at %d after %d", at, next)
			}
			if h.offset < 0 {
				h.offset = int64(d.GetOffset())
			}
			next = int64(d.GetOffset()) + int64(len(d.GetStdout())+len(d.GetStderr())+len(d.GetPty()))
		}
	}
	if s.Err() != nil {
		h.err = s.Err()
	}
	h.lives = s.ResponseHeader().Get(outputLives)
	return h
}

func TestConnectGivesOutputFromAnOffsetOn(t *testing.T) {
	c, table, _ := serve(t)
	table.Begin(7, time.Time{})
	e := run(t, c, shell("echo out; echo err >&2; echo more"))
	for _, want := range []struct {
		from   string
		offset int64
		text   string
	}{{"0", 0, "out\nerr\nmore\n"}, {"tail", 0, "out\nerr\nmore\n"}, {"5", 5, "rr\nmore\n"}, {"13", -1, ""}} {
		h := second(connectTo(t, c, e.pid, outputFrom, want.from))
		if len(h.out)+len(h.errs) != len(want.text) || h.offset != want.offset || h.end == nil || h.err != nil || h.lives != "7:0" {
			t.Errorf("from %s: %+v", want.from, h)
		}
	}
	if h := second(connectTo(t, c, e.pid)); h.out+h.errs != "" || h.end == nil {
		t.Errorf("a stock client that comes late got %+v", h)
	}
}

func second(s *connect.ServerStreamForClient[process.ConnectResponse], h *heard) *heard {
	return h.all(s)
}

func TestAStreamWithAWindowEndsWithoutAnEnd(t *testing.T) {
	c, _, _ := serve(t)
	e := run(t, c, shell("echo 0123456789"))
	h := second(connectTo(t, c, e.pid, outputFrom, "2", outputWindow, "4"))
	if h.out != "2345" || h.end != nil || h.err != nil {
		t.Errorf("got %+v", h)
	}
	if h = second(connectTo(t, c, e.pid, outputFrom, "6", outputWindow, "5")); h.out != "6789\n" || h.end.GetStatus() != "exit status 0" || h.err != nil {
		t.Errorf("then %+v", h)
	}
}

func TestStartTakesAWindowTooAndIsTakenUpAgain(t *testing.T) {
	c, _, _ := serve(t)
	req := connect.NewRequest(shell("echo 0123456789; sleep 60"))
	req.Header().Set(outputFrom, "0")
	req.Header().Set(outputWindow, "3")
	s, err := c.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	e := &events{}
	if finish(s, e); e.out != "012" || e.end != nil || e.err != nil {
		t.Errorf("got %+v", e)
	}
	if h := second(connectTo(t, c, e.pid, outputFrom, "3", outputWindow, "8")); h.out != "3456789\n" || h.err != nil {
		t.Errorf("then %+v", h)
	}
}

func TestWhatIsNotKeptIsToldByAnEvent(t *testing.T) {
	c, _, _ := serve(t)
	e := run(t, c, shell(fmt.Sprintf("head -c %d /dev/zero; echo end", maxOutput)))
	h := second(connectTo(t, c, e.pid, outputFrom, "0"))
	if h.dropped != 4 || h.offset != 4 || len(h.out) != maxOutput || !strings.HasSuffix(h.out, "end\n") || h.err != nil {
		t.Errorf("%d dropped, %d bytes from %d on, %v", h.dropped, len(h.out), h.offset, h.err)
	}
}

func TestWrongOffsetsAreRefusedAndTheEndIsTold(t *testing.T) {
	c, table, _ := serve(t)
	table.Begin(1, time.Time{})
	e := run(t, c, shell("echo hello"))
	table.Begin(3, time.Time{})
	for _, bad := range []struct {
		headers []string
		code    connect.Code
		text    string
		end     string
	}{
		{[]string{outputFrom, "7"}, connect.CodeOutOfRange, "offset 7 is beyond the end of the output, 6", "6"},
		{[]string{outputFrom, fmt.Sprint(math.MaxInt64)}, connect.CodeOutOfRange, "beyond the end", "6"},
		{[]string{outputFrom, "5", outputLives, "1:0,2:4"}, connect.CodeOutOfRange, "rollback", "4"},
		{[]string{outputFrom, "5", outputLives, "2:0"}, connect.CodeOutOfRange, "the number is another's now", "other-process"},
		{[]string{outputFrom, "0", outputLives, "2:0"}, connect.CodeOutOfRange, "the number is another's now", "other-process"},
		{[]string{outputFrom, "tail", outputLives, "2:0"}, connect.CodeOutOfRange, "the number is another's now", "other-process"},
		{[]string{outputFrom, "-1"}, connect.CodeInvalidArgument, "want the offset of a byte, from 0 on, or tail", ""},
		{[]string{outputFrom, "99999999999999999999"}, connect.CodeInvalidArgument, "want the offset", ""},
		{[]string{outputFrom, "head"}, connect.CodeInvalidArgument, `"head": want`, ""},
		{[]string{outputFrom, "0", outputWindow, "0"}, connect.CodeInvalidArgument, "from 1 to 1048576", ""},
		{[]string{outputFrom, "0", outputWindow, "1048577"}, connect.CodeInvalidArgument, "from 1 to 1048576", ""},
		{[]string{outputFrom, "0", outputLives, "x"}, connect.CodeInvalidArgument, outputLives, ""},
		{[]string{outputFrom, "0", outputReader, strings.Repeat("x", 65)}, connect.CodeInvalidArgument, "at most 64 visible", ""},
		{[]string{outputFrom, "0", outputReader, "a b"}, connect.CodeInvalidArgument, "at most 64 visible", ""},
		{[]string{outputReader, "a"}, connect.CodeInvalidArgument, "it is for requests with Cube-Output-From", ""},
		{[]string{outputWindow, "5"}, connect.CodeInvalidArgument, "it is for requests with Cube-Output-From", ""},
	} {
		h := second(connectTo(t, c, e.pid, bad.headers...))
		var said *connect.Error
		if connect.CodeOf(h.err) != bad.code || !strings.Contains(h.err.Error(), bad.text) {
			t.Errorf("%q: got %v", bad.headers, h.err)
		} else if said = h.err.(*connect.Error); said.Meta().Get(outputEnd) != bad.end {
			t.Errorf("%q: the end is %q, want %q", bad.headers, said.Meta().Get(outputEnd), bad.end)
		} else if lives := said.Meta().Get(outputLives); (lives == "1:0,3:6") != (bad.end == "6" || bad.end == "4") {
			t.Errorf("%q: the lives are %q", bad.headers, lives)
		}
	}
	req := connect.NewRequest(shell("true"))
	req.Header().Set(outputFrom, "1")
	s, err := c.Start(t.Context(), req)
	for err == nil && s.Receive() {
		t.Error("it was started")
	}
	if err == nil {
		err = s.Err()
	}
	if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "begins at 0") {
		t.Errorf("a start from offset 1: %v", err)
	}
}

// TestASignalIsForTheProcessThatIsMeant: after a rollback another may have its number.
func TestASignalIsForTheProcessThatIsMeant(t *testing.T) {
	c, table, _ := serve(t)
	table.Begin(2, time.Time{})
	s, e := begin(t, t.Context(), c, shell("sleep 60"))
	table.Begin(3, time.Time{})
	kill := func(lives string) error {
		req := connect.NewRequest(&process.SendSignalRequest{Process: selector(e.pid), Signal: process.Signal_SIGNAL_SIGKILL})
		req.Header().Set(outputLives, lives)
		_, err := c.SendSignal(t.Context(), req)
		return err
	}
	for lives, want := range map[string]connect.Code{"1:0": connect.CodeNotFound, "x": connect.CodeInvalidArgument} {
		if err := kill(lives); connect.CodeOf(err) != want {
			t.Errorf("of %s: got %v", lives, err)
		}
	}
	if p := table.byPID[int(e.pid)]; p.over() {
		t.Error("it has ended")
	}
	if err := kill("2:0"); err != nil {
		t.Error(err)
	}
	if finish(s, e); e.end.GetStatus() != "signal: killed" {
		t.Errorf("it ended with %v, %v", e.end, e.err)
	}
}

// TestAProcessIsRememberedWhileItsReaderMayComeBack: half a minute would not do for one
// that is away for longer.
func TestAProcessIsRememberedWhileItsReaderMayComeBack(t *testing.T) {
	c, table, _ := serve(t)
	e := run(t, c, shell("echo 0123456789"))
	second(connectTo(t, c, e.pid, outputFrom, "0", outputWindow, "4"))
	p := table.byPID[int(e.pid)]
	table.forget(p)
	if h := second(connectTo(t, c, e.pid, outputFrom, "4")); h.out != "456789\n" || h.end == nil || h.err != nil {
		t.Fatalf("got %+v", h)
	}
	for p.out.awaited() > 0 { // it has all now
		if t.Context().Err() != nil {
			return
		}
	}
	table.forget(p)
	if _, err := table.Find(selector(e.pid)); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("it is still remembered: %v", err)
	}
}
