package proxy

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count requests by what they are for, never by sandbox.
type metrics struct {
	requests *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
	duration *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cube_proxy_requests_total", Help: "Requests to sandboxes, by kind of port and class of status.",
		}, []string{"port", "status"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cube_proxy_requests_in_flight", Help: "Requests to sandboxes that are under way, open streams included.",
		}, []string{"port"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cube_proxy_request_duration_seconds", Help: "How long requests to sandboxes took, streams included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10),
		}, []string{"port"}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.inFlight, m.duration} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// kind is what a port is for.
func kind(t target) string {
	switch t.port {
	case 0:
		return "none"
	case envdPort:
		return "envd"
	case 49999:
		return "code"
	default:
		return "other"
	}
}

func (m *metrics) begin(t target) (end func()) {
	g := m.inFlight.WithLabelValues(kind(t))
	g.Inc()
	return g.Dec
}

// end counts a request by the class of its answer; "reset" is one that was cut, and
// "none" one that had none because nobody waited for it.
func (m *metrics) end(t target, r *recorder, took time.Duration) {
	class := strconv.Itoa(r.status/100) + "xx"
	switch {
	case r.status == 0:
		class = "none"
	case r.reset:
		class = "reset"
	}
	m.requests.WithLabelValues(kind(t), class).Inc()
	m.duration.WithLabelValues(kind(t)).Observe(took.Seconds())
}
