// Command cube-network holds the user-space TCP/IP stack of every sandbox's NIC.
// The keeper starts it as root, with a listening SOCK_SEQPACKET unix socket as
// descriptor 3; it gives up all privileges before it serves. SIGTERM ends it.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	gvisor "gvisor.dev/gvisor/pkg/log"

	"cubesandbox/network/confine"
	"cubesandbox/network/service"
)

const listenerFD = 3

// The name under which it is listed: after being executed by descriptor that is a
// number. It is the main thread's, on which init runs.
func init() {
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&[]byte("cube-network\x00")[0])), 0, 0, 0)
}

func main() {
	uid := flag.Int("uid", 64902, "user id to run as; nothing else on the machine may use it")
	gid := flag.Int("gid", 64902, "group id to run as")
	allow := flag.String("allow-uids", "", "user ids, besides 0, whose processes may connect; with commas")
	procs := flag.Int("procs", max(2, min(4, runtime.NumCPU())), "processors to use; with one, a guest that floods slows the others down")
	flag.Parse()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(log, *uid, *gid, *allow, *procs); err != nil {
		log.Error("cube-network ends", "error", err.Error())
		os.Exit(1)
	}
}

func run(log *slog.Logger, uid, gid int, allow string, procs int) error {
	uids, err := parseUIDs(allow)
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		return confine.Drop(uid, gid)
	}
	if err := confine.Check(uid, gid); err != nil {
		return err
	}
	time.Local = time.UTC
	runtime.GOMAXPROCS(procs)
	gvisor.SetTarget(new(gvisor.MultiEmitter)) // what a guest makes it say is no news
	// The keeper may die, and the reader of our log with it.
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)

	file := os.NewFile(listenerFD, "listener")
	l, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("descriptor %d: %w; it must be a listening unix socket", listenerFD, err)
	}
	ul, ok := l.(*net.UnixListener)
	if !ok {
		return fmt.Errorf("descriptor %d: got a %s listener; want a unix socket", listenerFD, l.Addr().Network())
	}
	if err := confine.Seal(); err != nil {
		return err
	}
	return serve(log, service.New(log, file, uids), ul, term)
}

func serve(log *slog.Logger, s *service.Service, l *net.UnixListener, term <-chan os.Signal) error {
	log.Info("serving")
	var wg sync.WaitGroup
	var err error
	ended := make(chan struct{})
	wg.Go(func() {
		err = s.Serve(l)
		close(ended)
	})
	select {
	case <-term:
	case <-ended:
	}
	l.Close()
	wg.Wait()
	s.Close()
	log.Info("ended")
	return err
}

func parseUIDs(s string) ([]uint32, error) {
	uids := []uint32{0}
	if s == "" {
		return uids, nil
	}
	for f := range strings.SplitSeq(s, ",") {
		n, err := strconv.ParseUint(f, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("-allow-uids %q: %w", s, err)
		}
		uids = append(uids, uint32(n))
	}
	return uids, nil
}
