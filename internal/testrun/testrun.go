// Package testrun runs go test for make: everything that the tests say goes to
// files, so that nobody's pipe decides when it ends; a person gets a line for each
// package and the output of what failed.
package testrun

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Event is one line of go test -json; see go doc test2json.
type Event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string
	Output  string
}

// Summary counts tests, subtests included.
type Summary struct {
	Passed, Failed, Skipped int
	// FailedPackages also has those that do not build or end early.
	FailedPackages []string
}

// Err is nil when every test has passed and none was skipped.
func (s Summary) Err() error {
	if s.Failed == 0 && len(s.FailedPackages) > 0 {
		return fmt.Errorf("failed outside of any test: %s", strings.Join(s.FailedPackages, ", "))
	}
	if s.Failed > 0 {
		return fmt.Errorf("%d tests failed, in %s", s.Failed, strings.Join(s.FailedPackages, ", "))
	}
	if s.Skipped > 0 {
		return fmt.Errorf("%d tests were skipped; a test here runs or does not exist", s.Skipped)
	}
	return nil
}

// Run runs go test -json with args and writes what comes to DIR/NAME.json, and
// its standard error to DIR/NAME.stderr. To w it tells the progress.
func Run(ctx context.Context, w io.Writer, dir, name string, args []string) (Summary, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Summary{}, err
	}
	file, errFile := filepath.Join(dir, name+".json"), filepath.Join(dir, name+".stderr")
	out, err := os.Create(file)
	if err != nil {
		return Summary{}, err
	}
	defer out.Close()
	stderr, err := os.Create(errFile)
	if err != nil {
		return Summary{}, err
	}
	defer stderr.Close()

	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // tests clean up
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		return Summary{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	t := &tail{file: file, report: newReport(w)}
	look := time.NewTicker(500 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			if err := t.read(); err != nil {
				return t.report.sum, errors.Join(err, ctx.Err())
			}
		case err := <-ended:
			return t.report.finish(errors.Join(t.read(), unexplained(err, t.report.sum, errFile)))
		}
	}
}

// unexplained is the failure of go test itself where no event tells of it.
func unexplained(err error, sum Summary, errFile string) error {
	if err == nil || sum.Failed > 0 || len(sum.FailedPackages) > 0 {
		return nil
	}
	said, readErr := os.ReadFile(errFile)
	return errors.Join(fmt.Errorf("go test: %w: %s", err, said), readErr)
}

// tail reads what a growing file has got since the last time.
type tail struct {
	file   string
	at     int64
	report *report
}

func (t *tail) read() error {
	f, err := os.Open(t.file)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(t.at, io.SeekStart); err != nil {
		return err
	}
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what there is of the line is read when it is whole
		}
		if err != nil {
			return err
		}
		t.at += int64(len(line))
		var e Event
		if json.Unmarshal(line, &e) == nil {
			t.report.add(e)
		}
	}
}
