// Package footprint says what processes take of the machine's memory, so that what many
// share is counted once. It is one definition for tests and benchmarks.
package footprint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Footprint is what some processes take, in bytes. Anon, File and Shmem are proportional: of
// a page that n address spaces of this machine map, each takes the n-th part. So those of
// all processes together are what they take, each page once. Processes that share one
// address space, as gVisor's stubs do, are counted as one.
//
// File is page cache, which the kernel can take back while it is clean. What the kernel
// needs for descriptors, sockets and stacks of threads is not in here.
type Footprint struct {
	// Spaces is how many address spaces there are.
	Spaces            int
	Anon, File, Shmem int64
	// Unmapped is in memory files that the processes have open and nobody maps at the
	// moment: guest memory that no stub has touched yet, or not since it was unmapped.
	// It is taken all the same.
	Unmapped int64
	// Tables are page tables.
	Tables int64
}

// Total is all of it, in bytes.
func (f Footprint) Total() int64 { return f.Anon + f.File + f.Shmem + f.Unmapped + f.Tables }

// Kept is what the kernel cannot take back, in bytes: all but page cache.
func (f Footprint) Kept() int64 { return f.Total() - f.File }

// Of measures processes and all their descendants. One that ends meanwhile counts for what
// was seen of it. It needs the right to trace them.
func Of(pids ...int) (Footprint, error) {
	var f Footprint
	children, err := descent()
	if err != nil {
		return f, err
	}
	files := map[inode]int64{}
	var spaces []int // a process of each
	for _, pid := range family(pids, children) {
		counted, err := f.add(pid, spaces)
		if err != nil {
			return f, fmt.Errorf("memory of process %d: %w", pid, err)
		}
		if counted {
			spaces = append(spaces, pid)
		}
		memoryFiles(pid, files)
	}
	var held int64
	for _, bytes := range files {
		held += bytes
	}
	f.Unmapped = max(0, held-f.Shmem)
	return f, nil
}

// add counts a process whose address space is none of those of others, and reports whether
// it did. One that has ended has none.
func (f *Footprint) add(pid int, others []int) (bool, error) {
	for _, other := range others {
		same, err := sameSpace(pid, other)
		if err != nil || same {
			return false, gone(err)
		}
	}
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil || len(rollup) == 0 {
		return false, gone(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false, gone(err)
	}
	for _, part := range []struct {
		text []byte
		name string
		to   *int64
	}{
		{rollup, "Pss_Anon:", &f.Anon}, {rollup, "Pss_File:", &f.File}, {rollup, "Pss_Shmem:", &f.Shmem}, {status, "VmPTE:", &f.Tables},
	} {
		n, err := kilobytes(part.text, part.name)
		if err != nil {
			return false, err
		}
		*part.to += n
	}
	f.Spaces++
	return true, nil
}

// gone is nil for an error that says that a process has ended.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// sameSpace reports whether two processes share one address space.
func sameSpace(a, b int) (bool, error) {
	const vm = 1 // KCMP_VM
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), vm, 0, 0, 0)
	if errno != 0 {
		return false, fmt.Errorf("kcmp: %w", errno)
	}
	return r == 0, nil
}

// kilobytes finds a line "NAME N kB" and returns it in bytes.
func kilobytes(text []byte, name string) (int64, error) {
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == name {
			n, err := strconv.ParseInt(string(f[1]), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("the kernel does not say %s", strings.TrimSuffix(name, ":"))
}

// descent returns the children of every process.
func descent() (map[int][]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	out := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended
		}
		// The name before may hold anything: the last parenthesis ends it.
		if f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(f) > 1 {
			if parent, err := strconv.Atoi(string(f[1])); err == nil {
				out[parent] = append(out[parent], pid)
			}
		}
	}
	return out, nil
}

// family are processes and all their descendants.
func family(roots []int, children map[int][]int) []int {
	out := slices.Clone(roots)
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i]]...)
	}
	return out
}

// inode names a file.
type inode struct{ device, number uint64 }

// memoryFiles notes how many bytes each memory file has that a process has open.
func memoryFiles(pid int, to map[inode]int64) {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // it has ended
	}
	for _, e := range entries {
		var st unix.Stat_t
		target, err := os.Readlink(dir + e.Name())
		if err != nil || !strings.HasPrefix(target, "/memfd:") || unix.Stat(dir+e.Name(), &st) != nil {
			continue // closed meanwhile, or another kind of file
		}
		to[inode{st.Dev, st.Ino}] = st.Blocks * 512
	}
}
