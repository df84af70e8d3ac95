package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"cubesandbox/guest/envdpb/process"
	"cubesandbox/guest/spawn"
	"cubesandbox/guest/users"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

func TestEventsAreStartDataEnd(t *testing.T) {
	c, _, _ := serve(t)
	e := run(t, c, shell("echo out; echo err >&2; exit 7"))
	if e.err != nil || e.out != "out\n" || e.errs != "err\n" || !strings.HasSuffix(e.first, "_Start") || !strings.HasSuffix(e.last, "_End") {
		t.Errorf("events %+v", e)
	}
	if e.end.ExitCode != 7 || !e.end.Exited || e.end.Status != "exit status 7" || e.end.GetError() != "exit status 7" {
		t.Errorf("end %v", e.end)
	}
	if e = run(t, c, shell("true")); e.end.ExitCode != 0 || e.end.Status != "exit status 0" || e.end.Error != nil {
		t.Errorf("end of a success %v", e.end)
	}
	if e = run(t, c, shell("kill -KILL $$")); e.end.ExitCode != -1 || e.end.Exited || e.end.Status != "signal: killed" {
		t.Errorf("end by a signal %v", e.end)
	}
}

func TestBackgroundProcessDoesNotHoldTheEnd(t *testing.T) {
	c, table, h := serve(t)
	began := time.Now()
	e := run(t, c, shell("sleep 60 & echo started"))
	if e.err != nil || e.out != "started\n" || time.Since(began) > 20*time.Second {
		t.Errorf("events %+v after %v", e, time.Since(began))
	}
	if !table.Active() {
		t.Error("the table is not active while a descendant runs")
	}
	h.Kill("1")
	h.wait("1")
	if table.Active() {
		t.Error("the table is active although the descendant has ended")
	}
}

func TestLastWordsOfADescendantAreHeard(t *testing.T) {
	c, _, _ := serve(t)
	if e := run(t, c, shell("(sleep 0.01; echo late) & exit 0")); e.out != "late\n" {
		t.Errorf("output %q", e.out)
	}
}

func TestProcessOutlivesItsClient(t *testing.T) {
	c, _, _ := serve(t)
	ctx, cancel := context.WithCancel(context.Background())
	_, e := begin(t, ctx, c, shell("sleep 0.2; echo later; sleep 0.2"))
	cancel()
	s, err := c.Connect(context.Background(), connect.NewRequest(&process.ConnectRequest{Process: selector(e.pid)}))
	if err != nil {
		t.Fatal(err)
	}
	for s.Receive() {
		e.add(s.Msg().Event)
	}
	if e.out != "later\n" || e.end.GetExitCode() != 0 || s.Err() != nil {
		t.Errorf("events %+v, %v", e, s.Err())
	}
}

func TestEndedProcessCanStillBeConnectedTo(t *testing.T) {
	c, table, _ := serve(t)
	e := run(t, c, shell("exit 3"))
	s, err := c.Connect(context.Background(), connect.NewRequest(&process.ConnectRequest{Process: selector(e.pid)}))
	if err != nil {
		t.Fatal(err)
	}
	late := &events{}
	for s.Receive() {
		late.add(s.Msg().Event)
	}
	if late.pid != e.pid || late.end.GetExitCode() != 3 {
		t.Errorf("late events %+v, %v", late, s.Err())
	}
	table.forget(table.byPID[int(e.pid)])
	_, err = c.SendSignal(context.Background(), connect.NewRequest(&process.SendSignalRequest{Process: selector(e.pid)}))
	if connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), fmt.Sprintf("process with pid %d not found", e.pid)) {
		t.Errorf("error %v", err)
	}
}

func TestDeadlineKillsTheWholeTree(t *testing.T) {
	c, table, h := serve(t)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	s, e := begin(t, ctx, c, shell("sleep 60 & sleep 60"))
	other, err := c.Connect(context.Background(), connect.NewRequest(&process.ConnectRequest{Process: selector(e.pid)}))
	if err != nil {
		t.Fatal(err)
	}
	if finish(s, e); connect.CodeOf(e.err) != connect.CodeDeadlineExceeded || e.end != nil {
		t.Errorf("events %+v", e)
	}
	seen := &events{}
	for other.Receive() {
		seen.add(other.Msg().Event)
	}
	if seen.end.GetStatus() != "signal: killed" {
		t.Errorf("the other client saw %+v, %v", seen, other.Err())
	}
	h.wait("1") // a test that hangs here found a survivor
	if table.Active() {
		t.Error("the table is active after the deadline")
	}
}

// TestKillTakesTheWholeTree: a test that hangs here found a survivor.
func TestKillTakesTheWholeTree(t *testing.T) {
	c, table, h := serve(t)
	s, e := begin(t, t.Context(), c, shell("sleep 60 & (sleep 60 & sleep 60) & echo; sleep 60"))
	for e.out == "" && s.Receive() {
		e.add(s.Msg().Event)
	}
	kill := &process.SendSignalRequest{Process: selector(e.pid), Signal: process.Signal_SIGNAL_SIGKILL}
	if _, err := c.SendSignal(t.Context(), connect.NewRequest(kill)); err != nil {
		t.Fatal(err)
	}
	if finish(s, e); e.end.GetStatus() != "signal: killed" || e.end.GetExitCode() != -1 || e.end.GetExited() {
		t.Errorf("end %v, %v", e.end, e.err)
	}
	h.wait("1")
	if table.Active() {
		t.Error("the table is active after the kill")
	}
}

func TestInputReachesTheProcess(t *testing.T) {
	c, _, _ := serve(t)
	req := shell("cat; echo end")
	req.Stdin = nil // as old clients leave it: open
	ctx := context.Background()
	s, e := begin(t, ctx, c, req)
	in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("hello\n")}}
	if _, err := c.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: selector(e.pid), Input: in})); err != nil {
		t.Fatal(err)
	}
	stream := c.StreamInput(ctx)
	stream.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: selector(e.pid)}}})
	in.Input = &process.ProcessInput_Stdin{Stdin: []byte("again\n")}
	stream.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: in}}})
	if _, err := stream.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: selector(e.pid)})); err != nil {
		t.Fatal(err)
	}
	if finish(s, e); e.out != "hello\nagain\nend\n" {
		t.Errorf("output %q, %v", e.out, e.err)
	}
	_, err := c.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: selector(e.pid), Input: in}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("input to an ended process: %v", err)
	}
}

func TestInputThatIsNotReadEndsWithItsCaller(t *testing.T) {
	c, _, _ := serve(t)
	req := shell("sleep 60")
	req.Stdin = nil
	_, e := begin(t, context.Background(), c, req)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: make([]byte, 1<<20)}}
	_, err := c.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: selector(e.pid), Input: in}))
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("error %v", err)
	}
}

func TestProcessWithoutStdinReadsNothing(t *testing.T) {
	c, _, _ := serve(t)
	if e := run(t, c, shell("cat; echo end")); e.out != "end\n" {
		t.Errorf("output %q", e.out)
	}
}

func TestTerminalHasSizeAndEcho(t *testing.T) {
	c, _, _ := serve(t)
	ctx := context.Background()
	s, e := begin(t, ctx, c, &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "stty size; read line; stty size; echo got $line"}},
		Pty:     &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}},
	})
	for !strings.Contains(e.pty, "24 80") && s.Receive() {
		e.add(s.Msg().Event)
	}
	size := &process.PTY{Size: &process.PTY_Size{Cols: 132, Rows: 50}}
	if _, err := c.Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: selector(e.pid), Pty: size})); err != nil {
		t.Fatal(err)
	}
	in := &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("word\n")}}
	if _, err := c.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: selector(e.pid), Input: in})); err != nil {
		t.Fatal(err)
	}
	if finish(s, e); !strings.Contains(e.pty, "50 132") || !strings.Contains(e.pty, "got word") || e.err != nil {
		t.Errorf("terminal said %q, %v", e.pty, e.err)
	}
	_, err := c.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: selector(e.pid)}))
	if err == nil {
		t.Error("CloseStdin of a terminal succeeds")
	}
}

func TestListNamesRunningProcessesOnly(t *testing.T) {
	c, _, _ := serve(t)
	ctx := context.Background()
	tag := "mine"
	req := shell("sleep 60")
	req.Tag = &tag
	s, e := begin(t, ctx, c, req)
	run(t, c, shell("true"))
	list, err := c.List(ctx, connect.NewRequest(&process.ListRequest{}))
	if err != nil || len(list.Msg.Processes) != 1 || list.Msg.Processes[0].Pid != e.pid || list.Msg.Processes[0].GetTag() != tag {
		t.Errorf("list %v, %v", list, err)
	}
	byTag := &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}
	if _, err := c.SendSignal(ctx, connect.NewRequest(&process.SendSignalRequest{Process: byTag, Signal: process.Signal_SIGNAL_SIGTERM})); err != nil {
		t.Fatal(err)
	}
	if finish(s, e); e.end.GetStatus() != "signal: terminated" {
		t.Errorf("end %v, %v", e.end, e.err)
	}
}

func TestEnvironmentDoesNotLeakToTheNextCommand(t *testing.T) {
	c, table, _ := serve(t)
	table.SetEnv(map[string]string{"A": "sandbox", "B": "sandbox"})
	req := shell("echo $A $B")
	req.Process.Envs = map[string]string{"B": "request"}
	if e := run(t, c, req); e.out != "sandbox request\n" {
		t.Errorf("output %q", e.out)
	}
	if e := run(t, c, shell("echo $E2B_SANDBOX")); e.out != "true\n" {
		t.Errorf("a program is not told that it is in a sandbox: %q", e.out)
	}
	if e := run(t, c, shell("echo $A $B")); e.out != "sandbox sandbox\n" {
		t.Errorf("the next one's output %q", e.out)
	}
}

func TestUserComesFromBasicAuthentication(t *testing.T) {
	for header, want := range map[string]string{
		"": "user", "Basic cm9vdDo=": "root", "Basic !!": "user", "Bearer x": "user", "Basic Og==": "user",
	} {
		if got := RequestUser(http.Header{"Authorization": {header}}, "user"); got != want {
			t.Errorf("RequestUser(%q) = %q, want %q", header, got, want)
		}
	}
}

func TestErrorsHaveTheirCodes(t *testing.T) {
	for err, want := range map[error]connect.Code{
		&spawn.Error{Failure: spawn.FailureUser}:    connect.CodeUnauthenticated,
		&spawn.Error{Failure: spawn.FailureCwd}:     connect.CodeInvalidArgument,
		&spawn.Error{Failure: spawn.FailureCommand}: connect.CodeInvalidArgument,
		&spawn.Error{Failure: spawn.FailureLimit}:   connect.CodeResourceExhausted,
		&spawn.Error{Failure: 200}:                  connect.CodeInternal,
		fmt.Errorf("%w: 'x'", users.ErrUnknown):     connect.CodeUnauthenticated,
		spawn.ErrInitDied:                           connect.CodeAborted,
		fmt.Errorf("%w: 'x'", users.ErrUnknown):     connect.CodeUnauthenticated,
		context.DeadlineExceeded:                    connect.CodeDeadlineExceeded,
		errors.New("other"):                         connect.CodeInternal,
	} {
		if got := connect.CodeOf(startError(err)); got != want {
			t.Errorf("code of %v is %v, want %v", err, got, want)
		}
	}
}

func TestOOMIsTheReason(t *testing.T) {
	c, table, _ := serve(t)
	s, e := begin(t, context.Background(), c, shell("sleep 60"))
	table.OOM("1")
	unix.Kill(int(e.pid), unix.SIGKILL)
	if finish(s, e); e.end.GetStatus() != "signal: killed" || e.end.GetError() != "oom" {
		t.Errorf("end %v, %v", e.end, e.err)
	}
}

func TestOnlyManyEndedProcessesAreRemembered(t *testing.T) {
	_, table, _ := serve(t)
	for range maxEnded + 20 {
		p := &Process{done: make(chan struct{}), PID: 1 << 20, number: table.group.Add(1)}
		close(p.done)
		table.expect(p, time.Time{})
		table.add(p)
		table.finished(p)
	}
	if n := len(table.ended); n != maxEnded {
		t.Errorf("%d are remembered, want %d", n, maxEnded)
	}
}
