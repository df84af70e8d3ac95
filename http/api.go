package http

import (
	_ "embed"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	cube "cubesandbox"
)

// Config is what the API stands on.
type Config struct {
	Service cube.Service
	// Key is the API key; empty: none is asked for, and only requests that name a
	// loopback host are answered.
	Key string
	// Domain is told to clients as that of their sandboxes.
	Domain string
	// NodeID is told to clients as where their sandboxes are; empty: "local".
	NodeID  string
	Version string
	// Dialect is that of clients that do not show theirs: "cube" or "e2b"; empty: cube.
	Dialect string
	// MaxTimeout bounds what clients may ask for; 0: nothing does.
	MaxTimeout time.Duration
	Log        *slog.Logger
	// Audit gets a line of JSON for each call that changes something; nil: none.
	Audit io.Writer
	// Metrics takes ours, and is what GET /metrics shows.
	Metrics *prometheus.Registry
	// Phases counts sandboxes by phase, for the metrics; may be nil.
	Phases func() map[string]int
}

// API answers requests.
type API struct {
	conf    Config
	svc     cube.Service
	log     *slog.Logger
	audit   *audit
	metrics *metrics
	mux     *http.ServeMux
	other   http.Handler // of what no route takes
	routes  []route
}

//go:embed openapi.yaml
var spec []byte

// Time limits of calls (CubeSandbox's).
const (
	quick  = 30 * time.Second
	start  = 120 * time.Second
	saving = 240 * time.Second
)

// route is one of the API's.
type route struct {
	method, pattern string
	// op names it in metrics and audit lines.
	op    string
	limit time.Duration
	// changes: it leaves an audit line.
	changes bool
	do      func(*call) (answer, error)
}

// New makes the API.
func New(c Config) (*API, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.NodeID == "" {
		c.NodeID = "local"
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	switch c.Dialect {
	case "":
		c.Dialect = dialectCube
	case dialectCube, dialectE2B:
	default:
		return nil, fmt.Errorf("dialect %q: want cube or e2b: %w", c.Dialect, cube.ErrInvalid)
	}
	a := &API{conf: c, svc: c.Service, log: c.Log, audit: &audit{w: c.Audit}, mux: http.NewServeMux()}
	var err error
	if a.metrics, err = newMetrics(c.Metrics, c.Phases); err != nil {
		return nil, err
	}
	a.routes = a.table()
	for _, r := range a.routes {
		a.mux.Handle(r.method+" "+r.pattern, a.handle(r))
	}
	a.other = a.handle(route{op: "unknown", limit: quick, do: a.unknown})
	a.mux.Handle("/", a.other)
	return a, nil
}

// table is every route: those that work, and those that are known and do not yet.
func (a *API) table() []route {
	box := "/sandboxes/{sandboxID}"
	metrics := promhttp.HandlerFor(a.conf.Metrics, promhttp.HandlerOpts{})
	rs := []route{
		{"GET", "/health", "health", quick, false, a.health},
		{"GET", "/metrics", "metrics", quick, false, raw(metrics)},
		{"GET", "/openapi.yaml", "openapi", quick, false, raw(http.HandlerFunc(serveSpec))},
		{"GET", "/sandboxes", "list", quick, false, a.list},
		{"GET", "/v2/sandboxes", "list", quick, false, a.listPage},
		{"POST", "/sandboxes", "create", start, true, a.create},
		{"POST", "/v2/sandboxes", "create", start, true, a.create},
		{"GET", box, "get", quick, false, a.get},
		{"DELETE", box, "kill", start, true, a.kill},
		{"POST", box + "/connect", "connect", start, true, a.connect},
		{"POST", "/v2" + box + "/connect", "connect", start, true, a.connect},
		{"POST", box + "/pause", "pause", start, true, a.pause},
		{"POST", box + "/resume", "resume", start, true, a.resume},
		{"POST", box + "/timeout", "timeout", quick, true, a.timeout},
		{"POST", box + "/refreshes", "refresh", quick, true, a.refresh},
		{"POST", box + "/snapshots", "snapshot", saving, true, a.snapshot},
		{"POST", box + "/rollback", "rollback", saving, true, a.rollback},
		{"POST", box + "/clone", "clone", saving, true, a.clone},
		{"POST", box + "/recover", "recover", start, true, a.recover},
		{"GET", "/sandboxes/ended", "ended", quick, false, a.ended},
		{"GET", "/snapshots", "snapshots", quick, false, a.snapshots},
		{"GET", "/templates", "templates", quick, false, a.templates},
		{"GET", "/v2/templates", "templates", quick, false, a.templates},
		{"GET", "/templates/{templateID}", "template", quick, false, a.template},
		{"DELETE", "/templates/{templateID}", "delete", saving, true, a.deleteTemplate},
		{"GET", "/templates/aliases/{alias}", "alias", quick, false, a.alias},
		{"POST", "/images/{imageID}/verify", "verify", saving, true, a.verify},
		{"POST", "/gc", "collect", saving, true, a.collect},
		{"GET", "/plans", "plans", quick, false, a.plans},
	}
	for _, l := range later {
		method, pattern, _ := strings.Cut(l, " ")
		rs = append(rs, route{method, pattern, "later", quick, false, notYet})
	}
	return rs
}

// raw lets a handler write its own answer.
func raw(h http.Handler) func(*call) (answer, error) {
	return func(c *call) (answer, error) {
		h.ServeHTTP(c.w, c.r)
		return answer{written: true}, nil
	}
}

func serveSpec(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	w.Write(spec)
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !clean(r.URL) {
		a.other.ServeHTTP(w, r)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// clean reports whether a path has nothing in it for which the mux would redirect, in
// no dialect's form: empty and dotted segments, a slash at the end.
func clean(u *url.URL) bool {
	p := u.EscapedPath()
	return path.Clean(p) == p
}
