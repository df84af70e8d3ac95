package http

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// tell logs a call, and audits it if it was to change something.
func (a *API) tell(c *call, rt route, status int, took time.Duration, err error) {
	level := slog.LevelDebug
	if rt.changes {
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{
		slog.String("request", c.id), slog.String("op", rt.op), slog.String("sandbox", string(c.sandbox)),
		slog.Int("status", status), slog.Duration("took", took),
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
		if status >= 500 && status != 501 {
			level = slog.LevelError
		}
	}
	a.log.LogAttrs(context.WithoutCancel(c.ctx()), level, "request", attrs...)
	if rt.changes {
		a.audit.write(a.line(c, rt, status, took, err))
	}
}

// auditLine is what is kept of a call that was to change something. It holds no
// secret.
type auditLine struct {
	Time    time.Time `json:"time"`
	Request string    `json:"request"`
	// Key is the fingerprint of the key that was given: the first 8 hex digits of
	// its SHA-256.
	Key     string   `json:"key,omitempty"`
	Remote  string   `json:"remote"`
	Op      string   `json:"op"`
	Method  string   `json:"method"`
	Path    string   `json:"path"`
	Dialect string   `json:"dialect"`
	Sandbox string   `json:"sandbox,omitempty"`
	Other   []string `json:"other,omitempty"` // ids that were made or deleted
	Status  int      `json:"status"`
	Error   string   `json:"error,omitempty"`
	Millis  float64  `json:"ms"`
}

func (a *API) line(c *call, rt route, status int, took time.Duration, err error) auditLine {
	l := auditLine{
		Time: time.Now().UTC(), Request: c.id, Key: a.fingerprint(c), Remote: c.r.RemoteAddr, Op: rt.op, Method: c.r.Method,
		Path: c.r.URL.Path, Dialect: c.dialect, Sandbox: string(c.sandbox), Other: c.made, Status: status,
		Millis: float64(took.Microseconds()) / 1000,
	}
	if err != nil {
		l.Error = err.Error()
	}
	return l
}

// fingerprint is that of the right key, if it was given, or of one that was.
func (a *API) fingerprint(c *call) string {
	given := credentials(c.r)
	if len(given) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(given[max(0, slices.IndexFunc(given, a.isKey))]))
	return hex.EncodeToString(sum[:4])
}

// audit writes whole lines.
type audit struct {
	mu sync.Mutex // makes lines whole
	w  io.Writer
}

func (a *audit) write(l auditLine) {
	if a.w == nil {
		return
	}
	b, err := json.Marshal(l)
	if err != nil {
		return // texts and numbers always can be
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.w.Write(append(b, '\n'))
}

// metrics count calls.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

func newMetrics(r prometheus.Registerer, phases func() map[string]int) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cube_api_requests_total", Help: "Calls of the API, by operation, method and status.",
		}, []string{"op", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cube_api_request_duration_seconds", Help: "How long calls took, by operation.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"op"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cube_api_requests_in_flight", Help: "Calls that are under way."}),
	}
	all := []prometheus.Collector{m.requests, m.duration, m.inFlight}
	if phases != nil {
		all = append(all, sandboxes(phases))
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) begin() (end func()) {
	m.inFlight.Inc()
	return m.inFlight.Dec
}

func (m *metrics) end(op, method string, status int, took time.Duration) {
	switch method { // a stranger chooses it
	case "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS":
	default:
		method = "other"
	}
	m.requests.WithLabelValues(op, method, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(op).Observe(took.Seconds())
}

// sandboxes collects how many there are in each phase.
type sandboxes func() map[string]int

var sandboxesDesc = prometheus.NewDesc("cube_sandboxes", "Sandboxes, by phase.", []string{"phase"}, nil)

// Describe implements prometheus.Collector.
func (s sandboxes) Describe(ch chan<- *prometheus.Desc) { ch <- sandboxesDesc }

// Collect implements prometheus.Collector.
func (s sandboxes) Collect(ch chan<- prometheus.Metric) {
	for phase, n := range s() {
		ch <- prometheus.MustNewConstMetric(sandboxesDesc, prometheus.GaugeValue, float64(n), phase)
	}
}
