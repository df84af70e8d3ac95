package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// regionPart is a region of this process. It is read by loads first.
func (g *guest) regionPart(rg *region) part {
	mem := way{name: "/proc/self/mem", open: func() (func(int64, []byte) error, func(), error) {
		f, err := os.Open("/proc/self/mem")
		if err != nil {
			return nil, nil, err
		}
		return func(off int64, b []byte) error {
			_, err := f.ReadAt(b, int64(rg.addr)+off)
			return err
		}, func() { f.Close() }, nil
	}}
	return part{
		name: rg.name, size: int64(rg.size),
		read: func(off int64, b []byte) ([]bool, error) { return loads(rg.addr+uintptr(off), b), nil },
		flip: func(off int64) error {
			if faults(func() { at(rg.addr+uintptr(off), 1)[0] ^= 0x40 }) {
				return errors.New("it cannot be stored to")
			}
			return nil
		},
		ways: []way{
			always("process_vm_readv", false, func(off int64, b []byte) error { return whole(vmRead(os.Getpid(), rg.addr+uintptr(off), b))(len(b)) }),
			mem,
			throughPipe("write(2) into a pipe", func(fd int, off int64, n int) (int, error) {
				return unix.Write(fd, at(rg.addr+uintptr(off), uintptr(n)))
			}),
		},
	}
}

// loads copies memory, and says which pages could not be loaded; nil: all could.
func loads(addr uintptr, b []byte) (bad []bool) {
	n := uintptr(len(b))
	if !faults(func() { copy(b, at(addr, n)) }) {
		return nil
	}
	for off := uintptr(0); off < n; off += page {
		end := min(off+page, n)
		bad = append(bad, faults(func() { copy(b[off:end], at(addr+off, end-off)) }))
	}
	return bad
}

// whole is an error unless all was read.
func whole(n int, err error) func(want int) error {
	return func(want int) error {
		if err == nil && n != want {
			err = fmt.Errorf("%d of %d bytes", n, want)
		}
		return err
	}
}

// throughPipe reads by having the kernel write into a pipe.
func throughPipe(name string, write func(fd int, off int64, n int) (int, error)) way {
	return way{name, true, func() (func(int64, []byte) error, func(), error) {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return nil, nil, err
		}
		r := os.NewFile(uintptr(fds[0]), "pipe")
		read := func(off int64, b []byte) error {
			for done := 0; done < len(b); {
				n, err := write(fds[1], off+int64(done), len(b)-done)
				if err != nil || n <= 0 {
					return fmt.Errorf("%d bytes: %w", n, err)
				}
				if _, err := io.ReadFull(r, b[done:done+n]); err != nil {
					return err
				}
				done += n
			}
			return nil
		}
		return read, func() { r.Close(); unix.Close(fds[1]) }, nil
	}}
}

// part is a region as a worker has it. It is read by its parent first. aside: only when
// all is read.
func (w *worker) part(rg *region, aside bool) part {
	p := part{
		name: w.name + " " + rg.name, size: int64(rg.size), aside: aside,
		read: func(off int64, b []byte) (bad []bool, err error) {
			if n, err := vmRead(w.pid, rg.addr+uintptr(off), b); err == nil && n == len(b) {
				return nil, nil
			}
			for from := 0; from < len(b); from += page {
				piece := b[from:min(from+page, len(b))]
				n, err := vmRead(w.pid, rg.addr+uintptr(off)+uintptr(from), piece)
				if err != nil && err != syscall.EFAULT {
					return nil, err
				}
				bad = append(bad, err != nil || n != len(piece))
			}
			return bad, nil
		},
		flip: func(off int64) error {
			addr := rg.addr + uintptr(off)
			b := make([]byte, 1)
			if _, err := vmRead(w.pid, addr, b); err != nil {
				return err
			}
			b[0] ^= 0x40
			return w.vmWrite(addr, b)
		},
	}
	if w.waiting { // it does not answer
		return p
	}
	p.ways = append(p.ways, always("its loads", false, func(off int64, b []byte) error { return w.loads(rg.addr+uintptr(off), b) }))
	if !aside {
		p.ways = append(p.ways, always("its write(2)", true, func(off int64, b []byte) error { return w.send(rg.addr+uintptr(off), b) }))
	}
	return p
}

func (w *worker) vmWrite(addr uintptr, b []byte) error {
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	n, err := unix.ProcessVMWritev(w.pid, local, []unix.RemoteIovec{{Base: addr, Len: len(b)}}, 0)
	return whole(n, err)(len(b))
}

// send has a worker write its memory into its pipe.
func (w *worker) send(addr uintptr, b []byte) error {
	if err := w.begin(doSyscall, unix.SYS_WRITE, w.out, addr, uintptr(len(b))); err != nil {
		return err
	}
	if _, err := io.ReadFull(w.answers, b); err != nil {
		return err
	}
	n, errno, err := w.finish()
	if err == nil && (errno != 0 || int(n) != len(b)) {
		err = fmt.Errorf("%d of %d bytes: %s", n, len(b), word(errno))
	}
	return err
}

// loads compares what a worker loads with what its parent has read: a sum of it, which
// is given back as these bytes where it is right.
func (w *worker) loads(addr uintptr, b []byte) error {
	if _, err := vmRead(w.pid, addr, b); err != nil {
		return err
	}
	want := sum(addrOf(b), uintptr(len(b)))
	got, _, err := w.do(doSum, addr, uintptr(len(b)))
	if err == nil && got != want {
		err = fmt.Errorf("it loads what gives the sum %#x, its parent reads %#x", got, want)
	}
	return err
}
