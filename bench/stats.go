package bench

import (
	"math"
	"slices"
	"time"
)

// sample is one operation.
type sample struct{ wall, cpu time.Duration }

// row summarises samples; there is at least one.
func row(name string, samples []sample) Row {
	walls := make([]time.Duration, len(samples))
	var cpu time.Duration
	for i, s := range samples {
		walls[i] = s.wall
		cpu += s.cpu
	}
	slices.Sort(walls)
	return Row{
		Name: name, N: len(samples),
		P50: ms(percentile(walls, 50)), P95: ms(percentile(walls, 95)), P99: ms(percentile(walls, 99)),
		CPU: ms(cpu / time.Duration(len(samples))),
	}
}

// RowOf summarises the times of operations that somebody else has measured; there is
// at least one.
func RowOf(name string, took []time.Duration) Row {
	samples := make([]sample, len(took))
	for i, t := range took {
		samples[i].wall = t
	}
	return row(name, samples)
}

// percentile is by nearest rank: the smallest value that p percent do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	rank := int(math.Ceil(float64(p) / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// ms keeps microseconds: more digits would claim what no clock here can tell.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
