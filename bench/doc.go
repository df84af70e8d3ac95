// Package bench measures the engine, one row for each figure that is published.
//
// Wall time is that of one operation as its caller sees it; where a row says
// "until /bin/true has exited", a process was started in the sandbox and has
// ended, so that the sandbox is known to work. CPU time is all that the operation
// took: of this process, the keeper, the network process, and every cgroup below
// the keeper's node, what was started in the background to fill a pool again
// included, since somebody has to pay it. Each operation is warmed up once; pools
// are full again before the next begins.
package bench

import (
	"context"
	"time"

	cube "cubesandbox"
)

// Config says what is measured.
type Config struct {
	Engine cube.Engine
	// Template is the image of `base`.
	Template cube.ImageID
	// Rootfs is the file system of Template: SHA-256, in hex.
	Rootfs string
	// DeleteImage takes a published image away.
	DeleteImage func(cube.ImageID) error
	// Connect opens a shell in a sandbox. Nothing is sent before it is used.
	Connect func(id cube.SandboxID) Shell
	// Meter reads the CPU time that everything of ours has taken.
	Meter Meter
	// N scales the number of repetitions: 1 is the default of each row.
	N float64
	// IdleAfter is how long a sandbox rests before its overhead is taken.
	IdleAfter time.Duration
	// Learn is how long the first copy of an image lives before others are measured.
	Learn time.Duration
	// Only measures the rows whose name begins with one of these; empty: all.
	Only []string
	// Evict takes the files of an image out of the page cache.
	Evict func(cube.ImageID) error
	// Footprint is what sandboxes take of the host's memory, in bytes, each page once.
	Footprint func(context.Context, ...cube.SandboxID) (int64, error)
	// Stock, when set, is an engine of gVisor without our patches, and what belongs to it: the
	// rows of what is shared are measured with it too, as NAME.stock.
	Stock *Config
	// Baseline, when set, is the runsc that is measured beside the engine.
	Baseline *Baseline
	// Begin and Done tell of each measurement, from which one or more rows come; nil
	// for not.
	Begin func(rows string)
	Done  func([]Row)
}

// Shell runs programs and writes files in one sandbox, as root, over connections
// that it keeps open.
type Shell interface {
	// Run fails unless the exit status is 0.
	Run(ctx context.Context, argv ...string) error
	WriteFile(ctx context.Context, path string, content []byte) error
	Close()
}

// Meter reads CPU time.
type Meter interface {
	// CPU returns what has been taken since some moment in the past.
	CPU() (time.Duration, error)
}

// Report is all that was measured; its JSON form is that of `cube bench --json`.
type Report struct {
	Machine Machine   `json:"machine"`
	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	// Engine is the version that was measured.
	Engine string `json:"engine"`
	Rows   []Row  `json:"rows"`
}

// Row is one figure. Times are in milliseconds.
type Row struct {
	Name string  `json:"name"`
	N    int     `json:"n"`
	P50  float64 `json:"p50_ms,omitempty"`
	P95  float64 `json:"p95_ms,omitempty"`
	P99  float64 `json:"p99_ms,omitempty"`
	// CPU is the mean of one operation; zero where it is not the row's subject.
	CPU float64 `json:"cpu_ms,omitempty"`
	// Value is the figure where it is no time; its unit is in the name.
	Value float64 `json:"value,omitempty"`
}
