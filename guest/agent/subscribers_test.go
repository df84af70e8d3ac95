package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// subscribed are the subscribers of a directory of the test's; sent is what they are sent.
func subscribed(t *testing.T, files map[string]string, send func(pid int) error) (_ *subscribers, sent, events *[]string) {
	t.Helper()
	sent, events = new([]string), new([]string)
	s, err := openSubscribers(t.TempDir(), func(_ context.Context, uid uint32, pid int, sig syscall.Signal) error {
		*sent = append(*sent, fmt.Sprint(uid, " ", pid, " ", unix.SignalName(sig)))
		return send(pid)
	}, func(kind, detail string) { *events = append(*events, said(kind, detail)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.dir.Close() })
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(s.dir.Name(), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s, sent, events
}

func TestSubscribersAreSentTheSignalThatTheyAskFor(t *testing.T) {
	s, sent, events := subscribed(t, map[string]string{
		"10": "", "11": "\n", "12": "HUP", "13": " sigterm\n", "14": "12\n", "15": "SIGUSR1",
	}, func(int) error { return nil })
	s.tell()
	slices.Sort(*sent)
	me := fmt.Sprint(os.Getuid(), " ")
	want := []string{me + "10 SIGUSR1", me + "11 SIGUSR1", me + "12 SIGHUP", me + "13 SIGTERM", me + "14 SIGUSR2", me + "15 SIGUSR1"}
	if !slices.Equal(*sent, want) || len(*events) != 0 {
		t.Errorf("sent %q, events %q", *sent, *events)
	}
}

func TestFilesOfProcessesThatHaveEndedAreRemoved(t *testing.T) {
	s, _, events := subscribed(t, map[string]string{"10": "", "11": "", "12": ""}, func(pid int) error {
		return map[int]error{10: unix.ESRCH, 11: nil, 12: unix.EPERM}[pid]
	})
	s.tell()
	left, err := filepath.Glob(s.dir.Name() + "/*")
	if err != nil || len(left) != 2 || filepath.Base(left[0]) != "11" {
		t.Errorf("left are %q, %v", left, err)
	}
	if len(*events) != 1 || !strings.Contains((*events)[0], `"12": its owner, user `) {
		t.Errorf("events %q", *events)
	}
}

func TestWhatIsNoSubscriptionIsSentNothing(t *testing.T) {
	s, sent, events := subscribed(t, map[string]string{
		"1": "", "0": "", "-5": "", "+5": "", "05": "", "5x": "", "99999999999999999999": "", "4194305": "",
		"20": "KILL", "21": "9", "22": "STOP", "23": "0", "24": "65", "25": "nonsense", "26": "USR1 USR2",
		"27": strings.Repeat("x", 1<<20), "28": strings.Repeat(" ", 31) + "\n10", "29": "\xff\x00\n\x1b[2J",
	}, func(int) error { return nil })
	dir := s.dir.Name()
	err := errors.Join(os.Symlink("/etc/hostname", dir+"/30"), unix.Mkfifo(dir+"/31", 0o666), os.Mkdir(dir+"/32", 0o755),
		os.WriteFile(dir+"/33", nil, 0o600), os.Link(dir+"/33", dir+"/34"))
	if err != nil {
		t.Fatal(err)
	}
	s.tell()
	if len(*sent) != 0 {
		t.Errorf("sent %q", *sent)
	}
	if len(*events) != 1 || !strings.HasSuffix((*events)[0], "; and 18 more") || strings.ContainsAny((*events)[0], "\x00\x1b\n") {
		t.Errorf("events %q", *events)
	}
}

func TestAFullDirectoryOfSubscribersIsNotReadToItsEnd(t *testing.T) {
	s, sent, events := subscribed(t, nil, func(int) error { return nil })
	for i := range 3 * maxEntries {
		if err := os.WriteFile(fmt.Sprint(s.dir.Name(), "/", 100+i), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s.tell(); len(*sent) != maxEntries || len(*events) != 1 {
		t.Errorf("%d sent, events %q", len(*sent), *events)
	}
}
