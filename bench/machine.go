package bench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

// Machine is where it was measured.
type Machine struct {
	CPU       string `json:"cpu"`
	CPUs      int    `json:"cpus"`
	MemoryMiB int64  `json:"memoryMiB"`
	Kernel    string `json:"kernel"`
	Arch      string `json:"arch"`
	// Virtual says whether the processor has the flag of a hypervisor.
	Virtual bool `json:"virtual"`
	// Load is the load of the last minute before it began.
	Load float64 `json:"load"`
}

// ThisMachine looks around. What it cannot find out stays empty.
func ThisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Arch: runtime.GOARCH}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		m.MemoryMiB = int64(si.Totalram) * int64(si.Unit) >> 20
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(b), " ")
		m.Load, _ = strconv.ParseFloat(first, 64)
	}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		sc := bufio.NewScanner(f)
		for sc.Scan() {
			key, value, _ := strings.Cut(sc.Text(), ":")
			switch strings.TrimSpace(key) {
			case "model name":
				m.CPU = strings.TrimSpace(value)
			case "flags":
				m.Virtual = strings.Contains(value+" ", " hypervisor ")
			}
		}
	}
	return m
}

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%s, %d CPUs, %d MiB, Linux %s %s, virtual: %t, load %.2f\n", m.CPU, m.CPUs, m.MemoryMiB, m.Kernel, m.Arch, m.Virtual, m.Load)
	fmt.Fprintf(w, "commit %s, %s, engine %s\n\n", r.Commit, r.Date.Format("2006-01-02 15:04 MST"), r.Engine)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "row\tn\tp50 ms\tp95 ms\tp99 ms\tCPU ms\t")
	for _, row := range r.Rows {
		if row.P50 == 0 {
			fmt.Fprintf(t, "%s\t%d\t%.1f\t\t\t\t\n", row.Name, row.N, row.Value)
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f\t%.1f\t", row.Name, row.N, row.P50, row.P95, row.P99)
		if row.CPU != 0 {
			fmt.Fprintf(t, "%.1f", row.CPU)
		}
		fmt.Fprint(t, "\t\n")
	}
	return t.Flush()
}
