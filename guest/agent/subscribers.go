package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cubesandbox/guest/agentapi"

	"golang.org/x/sys/unix"
)

// subscribers sends signals to the processes that have asked to hear of a restore.
// Each has a file in a directory that everybody may write to: its name is the
// process's number, its content the name or number of the signal. It is sent with
// the rights of the file's owner. All of it is hostile.
type subscribers struct {
	dir    *os.File // open, for most restores only look whether it is empty
	send   func(ctx context.Context, uid uint32, pid int, sig syscall.Signal) error
	report func(kind, detail string)
}

const (
	// defaultSignal is what an empty file asks for. SIGUSR1 means nothing to the
	// kernel; SIGHUP would be lost to everything that nohup has started.
	defaultSignal = unix.SIGUSR1
	// maxSignal bounds the content of a file, in bytes.
	maxSignal = 32
	// tellTime is how long telling all may take.
	tellTime = 2 * time.Second
)

func openSubscribers(dir string, send func(context.Context, uint32, int, syscall.Signal) error, report func(kind, detail string)) (*subscribers, error) {
	d, err := os.Open(dir)
	return &subscribers{d, send, report}, err
}

// tell sends the signals, and removes the files of those who have ended.
func (s *subscribers) tell() {
	_, err := s.dir.Seek(0, io.SeekStart)
	names, _ := s.dir.Readdirnames(maxEntries + 1)
	if err != nil || len(names) == 0 {
		return
	}
	var wrong []string
	if len(names) > maxEntries {
		names = names[:maxEntries]
		wrong = append(wrong, fmt.Sprintf("there are more than %d files: the others are not read", maxEntries))
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellTime)
	defer cancel()
	for _, name := range names {
		if err := s.tellOne(ctx, int(s.dir.Fd()), name); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", strconv.QuoteToASCII(name[:min(len(name), 100)]), err))
		}
	}
	if len(wrong) > 0 {
		s.report(agentapi.EventHookFailed, "in "+s.dir.Name()+": "+few(wrong))
	}
}

func (s *subscribers) tellOne(ctx context.Context, dir int, name string) error {
	pid, err := strconv.Atoi(name)
	if err != nil || pid < 2 || pid > 1<<22 || strconv.Itoa(pid) != name {
		return errors.New("its name is not the number of a process")
	}
	uid, sig, err := readSubscription(dir, name)
	if err == nil {
		err = s.send(ctx, uid, pid, sig)
	}
	switch {
	case errors.Is(err, unix.ESRCH):
		unix.Unlinkat(dir, name, 0)
		return nil
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("its owner, user %d, may not send process %d a signal", uid, pid)
	}
	return err
}

// readSubscription reads a file without waiting, and only one that nobody else could
// have made look like its owner's.
func readSubscription(dir int, name string) (uid uint32, sig syscall.Signal, err error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return 0, 0, errors.New("it is not a regular file of one name")
	}
	var b [maxSignal + 1]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return 0, 0, err
	}
	sig, err = parseSignal(b[:n])
	return st.Uid, sig, err
}

// parseSignal reads a signal's name, with or without SIG, or number.
func parseSignal(b []byte) (syscall.Signal, error) {
	text := strings.ToUpper(strings.TrimSpace(string(b)))
	if text == "" {
		return defaultSignal, nil
	}
	sig := unix.SignalNum("SIG" + strings.TrimPrefix(text, "SIG"))
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= 64 {
		sig = syscall.Signal(n)
	}
	if len(b) > maxSignal || sig == 0 || sig == unix.SIGKILL || sig == unix.SIGSTOP {
		return 0, fmt.Errorf("%s is not the name or number of a signal that a program can catch", strconv.QuoteToASCII(string(b)))
	}
	return sig, nil
}
