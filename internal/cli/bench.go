package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	cube "cubesandbox"
	"cubesandbox/bench"
	"cubesandbox/client"
	"cubesandbox/internal/local"
	"cubesandbox/internal/progress"
	"cubesandbox/internal/serve"
	"cubesandbox/probe"
)

// poolTime is enough for a server to fill its pools on a small machine.
const poolTime = 2 * time.Second

func (a *app) benchCommand() *cobra.Command {
	var short, baseline, stock, api bool
	n := 1.0
	var only []string
	c := &cobra.Command{
		Use: "bench", Short: "Measure the engine, or with --api the server: one row for each published figure", Args: cobra.NoArgs,
		Example: "  cube bench --short --only create,rollback\n  cube bench --api --json",
		RunE: func(c *cobra.Command, _ []string) error {
			if api && (baseline || stock) {
				return fmt.Errorf("%w: --baseline and --stock are for the engine, not for --api", errUsage)
			}
			if api {
				if short {
					n /= 4
				}
				return a.benchServer(c.Context(), bench.APIConfig{Template: baseTemplate, Rest: poolTime, N: n, Only: only})
			}
			return a.withTarget(c, func(s *local.Session, t probe.EngineTarget) error {
				conf, err := a.benchConfig(s, t)
				if err != nil {
					return err
				}
				conf.N, conf.Only, conf.IdleAfter = n, only, time.Minute
				if short {
					conf.N, conf.IdleAfter = n/4, 5*time.Second
				}
				if !stock {
					return a.bench(c.Context(), s, conf, baseline)
				}
				return a.withStock(c.Context(), func(other *bench.Config) error {
					conf.Stock = other
					return a.bench(c.Context(), s, conf, baseline)
				})
			})
		},
	}
	c.Flags().BoolVar(&api, "api", false, "measure the server, as a client sees it, instead of the engine in this process")
	c.Flags().BoolVar(&short, "short", false, "a quarter of the repetitions, and overhead 5 s after a restore instead of 60 s")
	c.Flags().BoolVar(&baseline, "baseline", false, "measure the runsc command line of the same module beside the engine (builds it once)")
	c.Flags().BoolVar(&stock, "stock", false, "measure the rows share.* with gVisor without our patches too (make stock)")
	c.Flags().Float64Var(&n, "n", n, "factor for the number of repetitions")
	c.Flags().StringSliceVar(&only, "only", nil, "only rows whose names begin with these")
	return c
}

func (a *app) benchConfig(s *local.Session, t probe.EngineTarget) (bench.Config, error) {
	base, err := s.Images.Image(t.Base)
	return bench.Config{
		Engine: s.Engine, Template: t.Base, Rootfs: base.Rootfs, DeleteImage: s.Images.Delete, Learn: 4 * time.Second,
		Connect:   func(id cube.SandboxID) bench.Shell { return shell{s.Shell(id, "")} },
		Evict:     func(id cube.ImageID) error { return evict(s, id) },
		Footprint: func(ctx context.Context, ids ...cube.SandboxID) (int64, error) { return memoryOf(ctx, s, ids...) },
	}, err
}

// shell is a local.Shell that wants success.
type shell struct{ *local.Shell }

func (s shell) Run(ctx context.Context, argv ...string) error {
	out, err := s.Shell.Run(ctx, argv...)
	if err == nil && out.Exit != 0 {
		err = fmt.Errorf("%s: exit status %d: %.200s", argv[0], out.Exit, out.Stderr)
	}
	return err
}

func (a *app) bench(ctx context.Context, s *local.Session, conf bench.Config, baseline bool) error {
	host, err := s.Host(ctx)
	if err != nil {
		return err
	}
	meter := bench.HostMeter{PIDs: host.PIDs}
	if v2 := bench.CgroupV2(); v2 != "" {
		meter.Cgroup = filepath.Join(v2, host.Cgroup)
	}
	conf.Meter = meter
	p := a.progress()
	if baseline {
		if conf.Baseline, err = a.buildBaseline(ctx, s, conf, p); err != nil {
			return fmt.Errorf("baseline: %w", err)
		}
		defer conf.Baseline.Close()
	}
	conf.Begin, conf.Done = steps(p)
	r := newReport(s.Engine.Version())
	if r.Rows, err = bench.Run(ctx, conf); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return a.print(r, r.WriteTable)
}

// benchServer measures the API and the data plane of the server.
func (a *app) benchServer(ctx context.Context, conf bench.APIConfig) error {
	s, err := a.server()
	if err != nil {
		return err
	}
	return a.withAPI(ctx, func(ctx context.Context, api *client.Client) error {
		conf.Client = api
		conf.Begin, conf.Done = steps(a.progress())
		r := newReport("API " + s.API)
		if r.Rows, err = bench.RunAPI(ctx, conf); err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		layers, err := layerRows(ctx, conf)
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		r.Rows = append(r.Rows, layers...)
		return a.print(r, r.WriteTable)
	})
}

// layerSandboxes is how many the list holds that is measured.
const layerSandboxes = 2000

// layerRows measures our own layers in this process, without an engine's work.
func layerRows(ctx context.Context, conf bench.APIConfig) ([]bench.Row, error) {
	names := []string{"api.layers.get", fmt.Sprintf("api.layers.list.%d", layerSandboxes), "api.layers.page.100", "proxy.layers.direct", "proxy.layers.through", "proxy.added"}
	wanted := func(name string) bool {
		return len(conf.Only) == 0 || slices.ContainsFunc(conf.Only, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	if !slices.ContainsFunc(names, wanted) {
		return nil, nil
	}
	conf.Begin("api.layers, proxy.layers")
	took, err := serve.Latencies(ctx, layerSandboxes, max(20, int(200*conf.N)))
	if err != nil {
		return nil, err
	}
	var rows []bench.Row
	for _, name := range names {
		if wanted(name) {
			rows = append(rows, bench.RowOf(name, took[name]))
		}
	}
	conf.Done(rows)
	return rows, nil
}

// steps tell of each measurement as a step of progress.
func steps(p *progress.Reporter) (begin func(string), done func([]bench.Row)) {
	var step *progress.Step
	return func(rows string) { step = p.Begin(rows) }, func(rows []bench.Row) { step.Done(brief(rows)) }
}

func newReport(measured string) bench.Report {
	return bench.Report{Machine: bench.ThisMachine(), Commit: commit(), Date: time.Now().UTC().Truncate(time.Second), Engine: measured}
}

// brief is what a line of progress says of rows.
func brief(rows []bench.Row) string {
	var out []string
	for _, r := range rows {
		if r.P50 == 0 {
			out = append(out, fmt.Sprintf("%.1f", r.Value))
		} else {
			out = append(out, fmt.Sprintf("%.1f ms", r.P50))
		}
	}
	return strings.Join(out, ", ")
}
