package realworld

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// program is one that works in a sandbox, with the one who knows what must be so.
type program struct {
	name, command string
	more          bool // is in the template with everything, and not in base
	late          bool // only with a CUBE_FORM: others say much of it
	jobs          bool // are run again and again; else it runs for ever
	visited       bool // from outside, on servedPort
}

// turns is how many snapshots and rollbacks a program goes through. After each, jobs are
// waited for.
func (p program) turns() int {
	if p.jobs {
		return lab.Pick(1, 1, 20)
	}
	return lab.Pick(1, 2, 20)
}

// look is what has the program compare all that it holds. Jobs do that themselves when they
// end: between two of them there is nothing to compare, and one would wait for it.
func (p program) look() string {
	if p.jobs {
		return "rounds"
	}
	return "check"
}

// servedPort is where servers listen inside, on every address.
const servedPort = 8080

// all are the programs. Each is told where it may write.
var all = []program{
	{name: "java", command: "kept.py data java -Xmx64m -cp /opt/jvm Server 8080", more: true, visited: true},
	{name: "npm", command: "tarballs.py data", more: true, jobs: true},
	{name: "pip", command: "wheels.py data", more: true, jobs: true},
	{name: "git", command: "clone.py data", jobs: true},
	{name: "redis", command: "model.py data", more: true},
	{name: "nginx", command: "kept.py data nginx", more: true},
	{name: "node", command: "kept.py data node server.js", more: true, visited: true},
	{name: "go", command: "kept.py data ./goserver", visited: true},
	{name: "sqlite", command: "ledger.py data", late: true},
	{name: "held", command: "held.py data", late: true},
	{name: "waiting", command: "waiting.py"},
	{name: "asyncio", command: "loops.py data"},
}

// chosen are those that CUBE_PROGRAM names; without it those of the form.
func chosen(t *testing.T) (out []program) {
	t.Helper()
	names, err := regexp.Compile(os.Getenv("CUBE_PROGRAM"))
	if err != nil {
		t.Fatalf("CUBE_PROGRAM: %v", err)
	}
	for _, p := range all {
		if names.MatchString(p.name) && (everything() || !p.more && !p.late) {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		t.Fatalf("CUBE_PROGRAM=%s fits none of %v", names, all)
	}
	return out
}

// home is where programs are inside; data is a folder there.
const home = "/srv/realworld"

// start makes a sandbox in which the program works, and returns when it has answered and
// gone round once: what comes later is compared with that.
func (p program) start(ctx context.Context) (b client.Sandbox, err error) {
	b, err = s.API.Create(ctx, client.NewSandbox{Template: template(), Timeout: cube.NeverTimeout})
	if err != nil {
		return b, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start: %w", err), s.API.Kill(context.WithoutCancel(ctx), b.ID))
		}
	}()
	if err := bring(ctx, b); err != nil {
		return b, err
	}
	line := "cd " + home + " && chmod +x goserver && setsid nohup python3 " + p.command + " >log 2>&1 </dev/null &"
	if _, err := lab.Shell(ctx, s.API, b, line); err != nil {
		return b, err
	}
	var now lab.Working
	err = lab.Until(time.Minute, "the program answers", func() (err error) {
		now, err = s.Ask(ctx, b.ID, "rounds")
		return err
	})
	if err == nil {
		err = s.Progress(ctx, b.ID, now)
	}
	if err != nil {
		log, lerr := lab.Shell(ctx, s.API, b, "tail -c 2000 "+home+"/log "+home+"/data/said")
		err = errors.Join(fmt.Errorf("%w; it says %q", err, log), lerr)
	}
	return b, err
}

// bring puts all programs into a sandbox, with those of e2e/programs that they need.
func bring(ctx context.Context, b client.Sandbox) error {
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err != nil {
		return err
	}
	if err := g.WriteFile(ctx, "root", home+"/goserver", bytes.NewReader(goserver)); err != nil {
		return err
	}
	files, err := filepath.Glob("guest/*")
	if err != nil {
		return err
	}
	files = append(files, "../programs/guest/work.py", "../programs/guest/keys.py")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := g.WriteFile(ctx, "root", home+"/"+filepath.Base(name), bytes.NewReader(text)); err != nil {
			return err
		}
	}
	return nil
}
