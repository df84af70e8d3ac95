package cli

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"cubesandbox/client"
)

// windowSize is that of a terminal.
func windowSize(fd int) (client.Size, error) {
	cols, rows, err := term.GetSize(fd)
	return client.Size{Rows: uint32(max(rows, 0)), Cols: uint32(max(cols, 0))}, err
}

// windowSizes tells of each new size until stop is called.
func windowSizes(fd int) (_ <-chan client.Size, stop func()) {
	sizes, changed, done := make(chan client.Size), make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(changed, syscall.SIGWINCH)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-changed:
			}
			s, err := windowSize(fd)
			if err != nil {
				continue
			}
			select {
			case <-done:
				return
			case sizes <- s:
			}
		}
	})
	return sizes, func() {
		signal.Stop(changed)
		close(done)
		wg.Wait()
	}
}
