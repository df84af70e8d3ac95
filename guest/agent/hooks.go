package agent

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/spawn"

	"golang.org/x/sys/unix"
)

// hooks runs the programs that a sandbox's root has put there to be run whenever a
// life begins that came from an image: before any request gets in.
//
// A hook that fails, hangs or talks nonsense harms no restore. What it says goes to
// the server's log, bounded and quoted.
type hooks struct {
	root   string // of the file system
	owner  uint32 // who must own what is run
	run    func(ctx context.Context, q spawn.Request, max int) ([]byte, unix.WaitStatus, error)
	report func(kind, detail string)
	// each and all are how long one hook, and all of them together, may take.
	each, all time.Duration
}

const (
	hookTime = 5 * time.Second
	// maxHookOutput is how much of what a hook says is kept, in bytes, and how long
	// that may be when it is quoted.
	maxHookOutput = 4 << 10
)

func newHooks(run func(context.Context, spawn.Request, int) ([]byte, unix.WaitStatus, error), report func(kind, detail string)) *hooks {
	return &hooks{root: "/", run: run, report: report, each: hookTime, all: agentapi.HooksTime}
}

// runAll runs them in the order of their names, one after the other.
func (h *hooks) runAll(id string, generation uint64) {
	names, ignored := h.find()
	if len(ignored) > 0 {
		h.report(agentapi.EventHookFailed, "not run in "+hooksDir+": "+few(ignored))
	}
	if len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.all)
	defer cancel()
	env := []string{"CUBE_SANDBOX_ID=" + id, "CUBE_GENERATION=" + strconv.FormatUint(generation, 10)}
	for i, name := range names {
		if ctx.Err() != nil {
			h.report(agentapi.EventHookFailed, fmt.Sprintf("not run in %s: %s: those before took all of the %v that hooks may take together", hooksDir, few(names[i:]), h.all))
			return
		}
		h.runOne(ctx, name, env)
	}
}

func (h *hooks) runOne(all context.Context, name string, env []string) {
	ctx, cancel := context.WithTimeout(all, h.each)
	defer cancel()
	began := time.Now()
	q := spawn.Request{User: "root", Cmd: path.Join(h.root, hooksDir, name), Cwd: "/", Env: env}
	output, status, err := h.run(ctx, q, maxHookOutput)
	took := time.Since(began).Round(time.Millisecond)
	kind, end := agentapi.EventHookFailed, ""
	switch {
	case all.Err() != nil:
		end = fmt.Sprintf("killed after %v: all hooks together may take %v", took, h.all)
	case ctx.Err() != nil:
		end = fmt.Sprintf("killed: a hook may take %v", h.each)
	case err != nil:
		end = err.Error()
	case status.Signaled():
		end = fmt.Sprintf("ended by signal %v after %v", status.Signal(), took)
	case status.ExitStatus() != 0:
		end = fmt.Sprintf("exit status %d after %v", status.ExitStatus(), took)
	default:
		kind, end = agentapi.EventHook, fmt.Sprintf("done after %v", took)
	}
	detail := path.Join(hooksDir, name) + ": " + end
	if len(output) > 0 {
		detail += "; it said " + quote(output)
	}
	h.report(kind, detail)
}

// quote makes what somebody inside said one line of bounded length.
func quote(b []byte) string {
	s := strconv.QuoteToASCII(string(b))
	if len(s) > maxHookOutput {
		s = s[:maxHookOutput] + `..."`
	}
	return s
}

// few are the first of many things, in a sentence.
func few(all []string) string {
	const most = 5
	if len(all) > most {
		return strings.Join(all[:most], "; ") + fmt.Sprintf("; and %d more", len(all)-most)
	}
	return strings.Join(all, "; ")
}
