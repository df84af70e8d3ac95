package realworld

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
	"cubesandbox/guest/envdpb/process"
	"cubesandbox/guest/envdpb/process/processconnect"
)

// loop is what is typed into bash: it counts, and answers each line that is typed with all
// of them, or with the size of its window. A line is read when all of it is there: what read
// has when its time is over is lost.
const loop = `stty -echo; i=0; said=; while :; do i=$((i+1)); echo "n $i"; sleep 0.01; if read -t 0; then read -r line; ` +
	`case $line in size) echo "size $(stty size)";; *) said="$said $line"; echo "said$said";; esac; fi; done`

// terminal is a terminal in a sandbox with a bash in it, as a client outside sees it.
type terminal struct {
	rpc   processconnect.ProcessClient
	pid   uint32
	lines *bufio.Reader // what it shows
	end   chan error    // of the stream, with its exit status in an exited
	stop  context.CancelFunc
	n     int // the number that it showed last; 0: none yet
}

// exited is the status of a process that has ended.
type exited int

func (e exited) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// events are those of a stream, of Start or Connect.
type events interface {
	next() *process.ProcessEvent // nil at its end
	Err() error
	Close() error
}

// show begins to carry what a stream says.
func (t *terminal) show(stop context.CancelFunc, from events) {
	r, w := io.Pipe()
	t.lines, t.end, t.stop, t.n = bufio.NewReader(r), make(chan error, 1), stop, 0
	go func() {
		err := io.ErrUnexpectedEOF
		for e := from.next(); e != nil; e = from.next() {
			if end := e.GetEnd(); end != nil {
				err = exited(end.GetExitCode())
				break
			}
			if _, werr := w.Write(e.GetData().GetPty()); werr != nil {
				break // nobody looks
			}
		}
		if _, ended := err.(exited); !ended && from.Err() != nil {
			err = from.Err()
		}
		w.CloseWithError(err)
		t.end <- errors.Join(err, from.Close())
	}()
}

// leave stops looking.
func (t *terminal) leave() {
	t.stop()
	for { // what was on its way
		if _, err := t.lines.ReadString('\n'); err != nil {
			break
		}
	}
	<-t.end
}

// until reads lines until there is one that begins so, and returns it. No number is missing
// or there twice.
func (t *terminal) until(begins string) (string, error) {
	for {
		line, err := t.lines.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("after number %d: %w", t.n, err)
		}
		line = strings.TrimRight(line, "\r\n")
		if text, ok := strings.CutPrefix(line, "n "); ok {
			n, err := strconv.Atoi(text)
			if err != nil {
				return "", fmt.Errorf("after number %d comes the line %q", t.n, line)
			}
			if t.n != 0 && n != t.n+1 {
				return "", fmt.Errorf("after number %d comes %d", t.n, n)
			}
			t.n = n
		}
		if strings.HasPrefix(line, begins) {
			return line, nil
		}
	}
}

// goesOn waits for some more numbers.
func (t *terminal) goesOn() error {
	for range 20 {
		if _, err := t.until("n "); err != nil {
			return err
		}
	}
	return nil
}

func (t *terminal) selector() *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: t.pid}}
}

// keys types.
func (t *terminal) keys(ctx context.Context, text string) error {
	in := &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte(text)}}
	_, err := t.rpc.SendInput(ctx, asRoot(&process.SendInputRequest{Process: t.selector(), Input: in}))
	return err
}

// says types a line and returns what is answered to it.
func (t *terminal) says(ctx context.Context, line, answer string) error {
	if err := t.keys(ctx, line+"\n"); err != nil {
		return err
	}
	begins, _, _ := strings.Cut(answer, " ")
	got, err := t.until(begins + " ")
	if err == nil && got != answer {
		err = fmt.Errorf("to %q it says %q, want %q", line, got, answer)
	}
	return err
}

// resize gives it so many rows, and 100 columns.
func (t *terminal) resize(ctx context.Context, rows int) error {
	pty := &process.PTY{Size: &process.PTY_Size{Rows: uint32(rows), Cols: 100}}
	_, err := t.rpc.Update(ctx, asRoot(&process.UpdateRequest{Process: t.selector(), Pty: pty}))
	return err
}

func asRoot[T any](m *T) *connect.Request[T] {
	r := connect.NewRequest(m)
	r.Header().Set("Authorization", "Basic cm9vdDo=") // root, and no password
	return r
}

type started struct {
	*connect.ServerStreamForClient[process.StartResponse]
}

func (s started) next() *process.ProcessEvent {
	if !s.Receive() {
		return nil
	}
	return s.Msg().GetEvent()
}

type connected struct {
	*connect.ServerStreamForClient[process.ConnectResponse]
}

func (s connected) next() *process.ProcessEvent {
	if !s.Receive() {
		return nil
	}
	return s.Msg().GetEvent()
}

// openTerminal starts bash in a terminal.
func openTerminal(ctx context.Context, b client.Sandbox) (*terminal, error) {
	t, err := terminalOf(b, 0)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	stream, err := t.rpc.Start(ctx, asRoot(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"--norc", "-i"}},
		Pty:     &process.PTY{Size: &process.PTY_Size{Rows: 24, Cols: 100}},
	}))
	if err != nil {
		stop()
		return nil, err
	}
	if e := (started{stream}).next(); e.GetStart() != nil {
		t.pid = e.GetStart().GetPid()
		t.show(stop, started{stream})
		return t, nil
	}
	stop()
	return nil, errors.Join(errors.New("the stream does not begin with a start"), stream.Err(), stream.Close())
}

// again looks at it anew, as one does when the sandbox has gone back.
func (t *terminal) again(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	stream, err := t.rpc.Connect(ctx, asRoot(&process.ConnectRequest{Process: t.selector()}))
	if err != nil {
		stop()
		return err
	}
	if e := (connected{stream}).next(); e.GetStart().GetPid() != t.pid {
		stop()
		return errors.Join(fmt.Errorf("the stream begins with %v, want process %d", e, t.pid), stream.Err(), stream.Close())
	}
	t.show(stop, connected{stream})
	return nil
}

// terminalOf is the one of a process in a sandbox.
func terminalOf(b client.Sandbox, pid uint32) (*terminal, error) {
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err != nil {
		return nil, err
	}
	return &terminal{rpc: processconnect.NewProcessClient(&http.Client{Transport: g}, "http://"+s.State.Data), pid: pid}, nil
}

// TestABashLoopInATerminalGoesOnFromRandomMoments: whoever looks at a terminal sees every
// number once across a save. A rollback ends what he sees with an error; when he looks again
// it is the same process, which has heard what was typed before the save and nothing since,
// and whose window has the size of then. A clone's is so too, and the others do not notice.
func TestABashLoopInATerminalGoesOnFromRandomMoments(t *testing.T) {
	s.Guard(t)
	turns := lab.Pick(1, 2, 20)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(turns)*time.Minute) // a line that does not come ends it
	defer cancel()
	c := &course{random: lab.Chance(t, sampleSeed)}
	var err error
	if c.box, err = s.API.Create(ctx, client.NewSandbox{Template: template(), Timeout: cube.NeverTimeout}); err != nil {
		t.Fatal(err)
	}
	term, err := openTerminal(ctx, c.box)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { term.leave() }()
	if err := errors.Join(term.keys(ctx, loop+"\n"), term.goesOn()); err != nil {
		t.Fatal(err)
	}
	heard := "said"
	for c.turn = 1; c.turn <= turns; c.turn++ {
		if heard, err = c.terminalTurn(ctx, term, heard); err != nil {
			t.Fatalf("turn %d: %v; the server's log has\n%s", c.turn, err, s.Warnings(5))
		}
	}
	if err := term.exit(ctx, 3); err != nil {
		t.Error(err)
	}
}

// exit ends the loop as one does at a terminal, and bash then. A ^C that comes when the
// sleep in the loop has just ended hits nobody, as on any machine: then the loop hears what
// was meant for bash.
func (t *terminal) exit(ctx context.Context, status int) error {
	for {
		err := errors.Join(t.keys(ctx, "\x03"), t.keys(ctx, fmt.Sprintf("exit %d\n", status)))
		if err != nil {
			return err
		}
		if _, err := t.until("said "); errors.Is(err, exited(status)) {
			return nil
		} else if err != nil {
			return fmt.Errorf("it ends with %w, want exit status %d", err, status)
		}
	}
}

// terminalTurn is one save and one rollback. heard is what the loop has heard, as it
// answers, before and after it.
func (c *course) terminalTurn(ctx context.Context, term *terminal, heard string) (string, error) {
	rows, before, since := 20+c.turn, "before"+c.name(), "since"+c.name()
	err := errors.Join(term.resize(ctx, rows), term.says(ctx, before, heard+" "+before), c.moment(ctx))
	if err != nil {
		return heard, err
	}
	heard += " " + before
	snap, err := s.API.Snapshot(ctx, c.box.ID, "")
	if err != nil {
		return heard, fmt.Errorf("snapshot: %w", err)
	}
	if err := errors.Join(term.goesOn(), term.says(ctx, since, heard+" "+since), term.resize(ctx, rows+100)); err != nil {
		return heard, fmt.Errorf("after the snapshot: %w", err)
	}
	if err := c.terminalClone(ctx, string(snap.ID), term.pid, heard, rows); err != nil {
		return heard, fmt.Errorf("clone: %w", err)
	}
	if err := errors.Join(term.goesOn(), c.moment(ctx), s.API.Rollback(ctx, c.box.ID, string(snap.ID))); err != nil {
		return heard, fmt.Errorf("rollback: %w", err)
	}
	if _, err := term.until("there is no such line"); err == nil || errors.As(err, new(exited)) {
		return heard, fmt.Errorf("after the rollback what it shows ends with %v, want the error of a connection", err)
	}
	term.leave()
	again := "again" + c.name()
	err = errors.Join(term.again(ctx), term.goesOn(), term.says(ctx, again, heard+" "+again), term.says(ctx, "size", fmt.Sprintf("size %d 100", rows)))
	if err != nil {
		return heard, fmt.Errorf("after the rollback: %w", err)
	}
	return heard + " " + again, s.API.DeleteImage(ctx, string(snap.ID))
}

// terminalClone makes a clone of a snapshot, and looks at the terminal in it.
func (c *course) terminalClone(ctx context.Context, snapshot string, pid uint32, heard string, rows int) error {
	made, err := s.API.Create(ctx, client.NewSandbox{Template: snapshot})
	if err != nil {
		return err
	}
	defer s.API.Kill(context.WithoutCancel(ctx), made.ID) // Guard says if it is left
	term, err := terminalOf(made, pid)
	if err != nil {
		return err
	}
	if err := term.again(ctx); err != nil {
		return err
	}
	defer term.leave()
	word := "clone" + c.name()
	return errors.Join(term.goesOn(), term.says(ctx, word, heard+" "+word), term.says(ctx, "size", fmt.Sprintf("size %d 100", rows)))
}
