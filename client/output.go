package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"connectrpc.com/connect"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/envdpb/process"
)

// Tail is the offset of the oldest output of a program that is kept: at most 1 MiB is.
const Tail int64 = -1

// Position is a place in the output of a program.
type Position struct {
	// Offset counts the bytes of all its streams before this place together, or is Tail.
	Offset int64 `json:"offset"`
	// Reader is the name that the reader has given itself, empty at first: whoever reads
	// on from a position takes its place, and is not waited for twice.
	Reader string `json:"reader,omitempty"`
	// Lives are those of the sandbox in which what is before was read, in a form that
	// only the agent understands; empty where that is not known. With them a rollback is
	// noticed also when the program has written as much again, or its number is another's.
	Lives string `json:"lives,omitempty"`
}

// Stream is which of a program's streams something was written to.
type Stream int

// The streams of a program; one with a terminal has only that.
const (
	Stdout Stream = iota
	Stderr
	TerminalStream
)

// Piece is a part of the output of a program.
type Piece struct {
	Stream Stream
	// Data is what was written, at most 32 KiB.
	Data []byte
	// Dropped is, where there is no data, how many bytes are not kept any more: too much
	// was written while nobody read.
	Dropped int64
	// Exit is set in the last piece: how the program has ended.
	Exit *Exit
	// Next is where what follows begins. Follow goes on from there, in this process or
	// in another.
	Next Position
}

// WentBackError says that a program's output is no more what was read of it: its sandbox
// was rolled back. What was read before To still holds, and reading can go on from there.
type WentBackError struct {
	From int64
	To   Position
}

// Error names both offsets.
func (e *WentBackError) Error() string {
	return fmt.Sprintf("the sandbox was rolled back: what was read from offset %d to %d no longer has been", e.To.Offset, e.From)
}

// Unwrap makes errors.Is work with cube.ErrConflict.
func (e *WentBackError) Unwrap() error { return cube.ErrConflict }

// ErrOtherProcess says that a program is no more, and that its number is another's now: its
// sandbox was rolled back to before it began, or has begun anew from its files. It is a
// cube.ErrNotFound.
var ErrOtherProcess = fmt.Errorf("the sandbox was rolled back to before the program began, or has begun anew; its number is another's now: %w", cube.ErrNotFound)

// Following says how Follow reads. The zero value is for a reader that must get all.
type Following struct {
	// Window is how much is asked for at a time, in bytes, at most 1 MiB; 0: 512 KiB. So
	// much is kept for the case that it gets lost on the way. Below 0 all is asked for at
	// once: that is faster, but what is lost on the way may then be more than is kept.
	Window int64
	// Patience is for how long the sandbox may not answer; 0: a minute, which is as long
	// as a reader is waited for inside. While it is paused no time passes.
	Patience time.Duration
}

// defaultWindow is half of what is kept: while it is read the program writes the other.
const defaultWindow = 512 << 10

// Follow reads the output of a running program, or of one that has ended within the last
// half minute, from a position on. It goes on by itself over broken connections, restarts
// of the server, pauses and resumes of the sandbox, and gives each byte once, in order; of
// what is not kept any more it says how much it was. The last piece has the program's end.
//
// An error is the last that comes. *WentBackError says that the sandbox was rolled back,
// ErrOtherProcess that the program is no more.
func (g *Guest) Follow(ctx context.Context, pid uint32, at Position, o Following) iter.Seq2[Piece, error] {
	if o.Window == 0 {
		o.Window = defaultWindow
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	if at.Reader == "" {
		at.Reader = rand.Text()
	}
	return func(yield func(Piece, error) bool) {
		f := &follower{g: g, pid: pid, at: at, o: o, yield: yield}
		for !f.over {
			err := f.read(ctx)
			if err != nil {
				err = f.wait(ctx, err)
			}
			if err != nil {
				yield(Piece{}, fmt.Errorf("follow process %d: %w", pid, meaning(err)))
				return
			}
		}
	}
}

// follower reads one program's output.
type follower struct {
	g     *Guest
	pid   uint32
	at    Position
	o     Following
	yield func(Piece, error) bool
	over  bool // the program has ended, or nobody wants more

	answered time.Time     // until when something came, or since when nothing does
	pause    time.Duration // before the next try
}

// errOldAgent is for sandboxes whose agent ignores our headers.
var errOldAgent = fmt.Errorf("the agent in this sandbox is older and keeps no output: %w", cube.ErrUnsupported)

// read reads over one connection. It returns nil where the next is to be asked for at once.
func (f *follower) read(ctx context.Context) error {
	req := connect.NewRequest(&process.ConnectRequest{Process: selector(f.pid)})
	readFrom(req.Header(), f.at, f.o.Window)
	stream, err := f.g.process.Connect(ctx, req)
	if err != nil {
		return err
	}
	defer stream.Close()
	began, came := f.at.Offset, false
	for stream.Receive() {
		if !came {
			lives := stream.ResponseHeader().Get(agentapi.OutputLives)
			if lives == "" {
				return errOldAgent
			}
			f.at.Lives, f.pause, came = lives, 0, true
		}
		if !f.take(stream.Msg().GetEvent()) {
			f.over = true
			return nil
		}
	}
	if came { // until now it has answered, also where it had nothing to say
		f.answered = time.Now()
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if f.at.Offset == began {
		return fmt.Errorf("%w: a stream without anything in it", cube.ErrAgent)
	}
	return nil
}

// take passes an event on, and reports whether more is wanted.
func (f *follower) take(e *process.ProcessEvent) bool {
	p, ok := f.at.pass(e)
	f.at = p.Next
	if !ok {
		return true
	}
	return f.yield(p, nil) && p.Exit == nil
}

// pass returns what an event says, and where what follows it begins. False: nothing.
func (at Position) pass(e *process.ProcessEvent) (p Piece, ok bool) {
	switch e := e.GetEvent().(type) {
	case *process.ProcessEvent_Data:
		switch out := e.Data.GetOutput().(type) {
		case *process.ProcessEvent_DataEvent_Stdout:
			p.Data = out.Stdout
		case *process.ProcessEvent_DataEvent_Stderr:
			p.Stream, p.Data = Stderr, out.Stderr
		case *process.ProcessEvent_DataEvent_Pty:
			p.Stream, p.Data = TerminalStream, out.Pty
		}
		if e.Data.Offset != nil {
			at.Offset = int64(e.Data.GetOffset())
		}
		at.Offset += int64(len(p.Data))
		ok = len(p.Data) > 0
	case *process.ProcessEvent_Dropped:
		p.Dropped = int64(e.Dropped.GetBytes())
		at.Offset += p.Dropped
		ok = true
	case *process.ProcessEvent_End:
		p.Exit, ok = exitOf(e.End), true
	}
	p.Next = at
	return p, ok
}

func exitOf(e *process.ProcessEvent_EndEvent) *Exit {
	return &Exit{Code: int(e.GetExitCode()), Status: e.GetStatus(), Reason: e.GetError()}
}

// wentBack says what an error out_of_range says.
func (f *follower) wentBack(err error) error {
	var e *connect.Error
	if !errors.As(err, &e) {
		return err
	}
	if e.Meta().Get(agentapi.OutputEnd) == agentapi.OtherProcess {
		return ErrOtherProcess
	}
	to, perr := strconv.ParseInt(e.Meta().Get(agentapi.OutputEnd), 10, 64)
	if perr != nil || to < 0 || to >= f.at.Offset {
		return fmt.Errorf("%w: where the output ends is not known", cube.ErrAgent)
	}
	return &WentBackError{From: f.at.Offset, To: Position{Offset: to, Reader: f.at.Reader, Lives: e.Meta().Get(agentapi.OutputLives)}}
}
