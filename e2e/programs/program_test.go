package programs

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// guest has the programs that are no Go and no Java: that one is compiled into the template.
//
//go:embed guest/*.py guest/*.js
var guest embed.FS

// program is one that works in a sandbox.
type program struct {
	name, command string
	late          bool // only with a CUBE_FORM: another is much like it
}

// all are the programs. Each is told where it may write.
var all = []program{
	{name: "jvm with G1", command: "java -Xmx96m -XX:+UseG1GC -cp /opt/jvm Work 8000"},
	{name: "go", command: "./goheap 127.0.0.1:8000"},
	{name: "jvm with Serial", command: "java -Xmx96m -XX:+UseSerialGC -cp /opt/jvm Work 8000", late: true},
	{name: "node", command: "node work.js"},
	{name: "redis", command: "python3 keys.py data"},
	{name: "sqlite", command: "python3 rows.py data"},
	{name: "numpy", command: "python3 matrices.py data"},
}

// chosen are those that CUBE_PROGRAM names; without it those of the form.
func chosen(t *testing.T) (out []program) {
	t.Helper()
	names, err := regexp.Compile(os.Getenv("CUBE_PROGRAM"))
	if err != nil {
		t.Fatalf("CUBE_PROGRAM: %v", err)
	}
	for _, p := range all {
		if names.MatchString(p.name) && (os.Getenv("CUBE_PROGRAM") != "" || !p.late || lab.Form() != "") {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		t.Fatalf("CUBE_PROGRAM=%s fits none of %v", names, all)
	}
	return out
}

// home is where programs are inside; data is a folder there.
const home = "/root/programs"

// start makes a sandbox in which the program works, and returns when it has answered.
func (p program) start(ctx context.Context) (b client.Sandbox, was lab.Working, err error) {
	b, err = s.API.Create(ctx, client.NewSandbox{Template: template, Timeout: cube.NeverTimeout})
	if err != nil {
		return b, was, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start %s: %w", p.name, err), s.API.Kill(context.WithoutCancel(ctx), b.ID))
		}
	}()
	if err := bring(ctx, b); err != nil {
		return b, was, err
	}
	line := "cd " + home + " && mkdir -p data && chmod +x goheap && setsid nohup " + p.command + " >log 2>&1 </dev/null &"
	if _, err := lab.Shell(ctx, s.API, b, line); err != nil {
		return b, was, err
	}
	err = lab.Until(time.Minute, "the program answers", func() (err error) {
		was, err = s.Ask(ctx, b.ID, "check")
		return err
	})
	if err != nil {
		log, lerr := lab.Shell(ctx, s.API, b, "tail -c 2000 "+home+"/log")
		err = errors.Join(fmt.Errorf("%w; it says %q", err, log), lerr)
	}
	return b, was, err
}

// bring puts all programs into a sandbox.
func bring(ctx context.Context, b client.Sandbox) error {
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err != nil {
		return err
	}
	if err := g.WriteFile(ctx, "root", home+"/goheap", bytes.NewReader(goheap)); err != nil {
		return err
	}
	entries, err := guest.ReadDir("guest")
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := guest.ReadFile("guest/" + e.Name())
		if err != nil {
			return err
		}
		if err := g.WriteFile(ctx, "root", home+"/"+e.Name(), bytes.NewReader(text)); err != nil {
			return err
		}
	}
	return nil
}
