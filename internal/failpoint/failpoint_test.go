package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var (
	fpOne = New("failpoint/test/one")
	fpTwo = New("failpoint/test/two")
)

// childVariable makes the test binary pass its places, as a main does.
const childVariable = "CUBE_FAILPOINT_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := FromEnv(); err != nil {
			os.Exit(3)
		}
		if err := errors.Join(fpOne.Hit(), fpTwo.Hit(), fpOne.Hit()); err != nil {
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func arm(t *testing.T, spec string) {
	t.Helper()
	if err := Arm(spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Arm(""); err != nil {
			t.Error(err)
		}
	})
}

// hits are the passes, of n, on which an error came.
func hits(p *Point, n int) (on []int) {
	for i := range n {
		if errors.Is(p.Hit(), ErrInjected) {
			on = append(on, i+1)
		}
	}
	return on
}

func TestAPlaceThatIsNotArmedIsPassedAndNotCounted(t *testing.T) {
	if got := hits(fpOne, 3); got != nil {
		t.Errorf("errors on passes %v", got)
	}
	if n := testing.AllocsPerRun(100, func() { fpOne.Hit() }); n != 0 {
		t.Errorf("a pass allocates %v times", n)
	}
	if got := Passes(fpOne.name); got != 0 {
		t.Errorf("got %d passes counted", got)
	}
}

func TestAnErrorComesOnThePassThatIsNamedAndOnEachWithoutOne(t *testing.T) {
	for spec, want := range map[string][2][]int{
		"failpoint/test/one=error(x)":                               {{1, 2, 3}, nil},
		"failpoint/test/one=error(x)@2":                             {{2}, nil},
		"failpoint/test/one=error(x)@1; failpoint/test/two=error()": {{1}, {1, 2, 3}},
		";;failpoint/test/two=error(x)@3;":                          {nil, {3}},
		"another/program's/place=kill":                              {nil, nil},
	} {
		arm(t, spec)
		if got := [2][]int{hits(fpOne, 3), hits(fpTwo, 3)}; !slices.Equal(got[0], want[0]) || !slices.Equal(got[1], want[1]) {
			t.Errorf("%s: errors on passes %v, want %v", spec, got, want)
		}
		if got := Passes(fpOne.name); got != 3 {
			t.Errorf("%s: got %d passes, want 3", spec, got)
		}
	}
}

func TestAnErrorSaysWhereItIsAndWhatItWasGiven(t *testing.T) {
	arm(t, "failpoint/test/one=error(a@b = (no space left))@1")
	if err := fpOne.Hit(); err == nil || !strings.HasSuffix(err.Error(), "failpoint/test/one: a@b = (no space left)") {
		t.Errorf("got %v", err)
	}
	if err := fpOne.Hit(); err != nil {
		t.Errorf("second pass: got %v", err)
	}
}

func TestAMistakeIsRefusedAndLeavesWhatWasArmed(t *testing.T) {
	arm(t, "failpoint/test/one=error(x)")
	for _, spec := range []string{
		"failpoint/test/two", "failpoint/test/two=", "failpoint/test/two=explode", "failpoint/test/two=kill@0", "failpoint/test/two=kill@-1",
		"failpoint/test/two=kill@2x", "failpoint/test/two=kill@", "failpoint/test/two=error", "failpoint/test/two=error(x", "failpoint/test/two=sleep",
		"failpoint/test/two=sleep(1)", "failpoint/test/two=kill(x)",
	} {
		if err := Arm(spec); err == nil || !strings.Contains(err.Error(), spec) {
			t.Errorf("%q: got %v, want an error that has it", spec, err)
		}
		if one, two := fpOne.Hit(), fpTwo.Hit(); one == nil || two != nil {
			t.Errorf("after %q: got %v and %v, want what was armed before", spec, one, two)
		}
	}
}

func TestASleepTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arm(t, "failpoint/test/one=sleep(90s)@2")
		for pass, want := range []time.Duration{0, 90 * time.Second, 0} {
			begin := time.Now()
			if err := fpOne.Hit(); err != nil || time.Since(begin) != want {
				t.Errorf("pass %d took %v (%v), want %v", pass+1, time.Since(begin), err, want)
			}
		}
	})
}

func TestAPanicNamesThePlace(t *testing.T) {
	arm(t, "failpoint/test/one=panic")
	defer func() {
		if got := recover(); got != "failpoint failpoint/test/one" {
			t.Errorf("got panic %v", got)
		}
	}()
	fpOne.Hit()
}

func TestAProcessIsKilledAtThePassThatItsEnvironmentNamesAndItsTraceHasEachPass(t *testing.T) {
	for _, c := range []struct {
		spec   string
		signal syscall.Signal
		exit   int
		trace  string
	}{
		{"", 0, 0, "one two one"},
		{"failpoint/test/one=kill@2", syscall.SIGKILL, -1, "one two one"},
		{"failpoint/test/two=kill", syscall.SIGKILL, -1, "one two"},
		{"failpoint/test/two=error(x)", 0, 2, "one two one"},
		{"failpoint/test/two=explode", 0, 3, ""},
	} {
		trace := filepath.Join(t.TempDir(), "trace")
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childVariable+"=1", Env+"="+c.spec, TraceEnv+"="+trace)
		err := cmd.Run()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if cmd.ProcessState.ExitCode() != c.exit || status.Signaled() && status.Signal() != c.signal {
			t.Errorf("%q: ended with %v, want exit status %d, signal %v", c.spec, err, c.exit, c.signal)
		}
		b, err := os.ReadFile(trace)
		if got := strings.ReplaceAll(strings.Join(strings.Fields(string(b)), " "), "failpoint/test/", ""); err != nil || got != c.trace {
			t.Errorf("%q: the trace is %q (%v), want %q", c.spec, got, err, c.trace)
		}
	}
}

func TestANameIsGivenOnceAndListed(t *testing.T) {
	if names := Names(); !slices.Contains(names, fpOne.name) || !slices.Contains(names, fpTwo.name) || !slices.IsSorted(names) {
		t.Errorf("got %v", names)
	}
	defer func() {
		if got, _ := recover().(string); !strings.Contains(got, fpOne.name) {
			t.Errorf("got %q, want a panic that names it", got)
		}
	}()
	New(fpOne.name)
}
