package cli

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sort"

	"github.com/spf13/cobra"

	"cubesandbox/bench"
	"cubesandbox/client"
	"cubesandbox/demo"
	"cubesandbox/internal/local"
	"cubesandbox/probe"
)

// baseTemplate is what demo, probe and bench start from.
const baseTemplate = "base"

func target(s *local.Session, base probe.EngineTarget) probe.EngineTarget {
	base.Engine, base.Images, base.Guest = s.Engine, s.Images, s
	return base
}

// withTarget runs work on the engine with the template that is needed.
func (a *app) withTarget(c *cobra.Command, work func(*local.Session, probe.EngineTarget) error) error {
	return a.with(c.Context(), func(s *local.Session) error {
		img, err := s.Build(c.Context(), baseTemplate, false)
		if err != nil {
			return fmt.Errorf("template %s: %w", baseTemplate, err)
		}
		return work(s, target(s, probe.EngineTarget{Base: img.ID}))
	})
}

func (a *app) demoCommand() *cobra.Command {
	clones := 10
	c := &cobra.Command{
		Use: "demo", Short: "Show a process killed, brought back with its memory, and cloned", Args: cobra.NoArgs,
		Long: "Uses the server, or the engine itself, in this process, where none answers.",
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := a.served(c.Context())
			if err != nil {
				return err
			}
			if api != nil {
				defer api.Close()
				return a.demo(c.Context(), probe.NewHTTPTarget(api, baseTemplate), clones)
			}
			return a.withTarget(c, func(_ *local.Session, t probe.EngineTarget) error { return a.demo(c.Context(), t, clones) })
		},
	}
	c.Flags().IntVar(&clones, "clones", clones, "how many clones to make")
	return c
}

func (a *app) demo(ctx context.Context, t demo.Service, clones int) error {
	step := a.progress().Begin("demo")
	r, err := demo.Run(ctx, t, clones, func(demo.Step) { step.Add(1) })
	if err != nil {
		step.Fail(err)
		return fmt.Errorf("demo: %w", err)
	}
	step.Done("")
	return a.print(r, r.WriteTable)
}

func (a *app) probeCommand() *cobra.Command {
	o := probe.Options{Rounds: 3}
	engine := false
	c := &cobra.Command{
		Use: "probe", Short: "Repeat the experiment that a sandbox must pass, and say whether it did",
		Long: "A program keeps its progress in memory only. Each round saves the sandbox, kills the\n" +
			"program, rolls back, ends the sandbox, makes a new one from the snapshot, and compares\n" +
			"five values and a file each time. Exit status 3 when a check fails.",
		Example: "  cube probe --rounds 20\n  cube probe --engine",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Rounds < 1 {
				return fmt.Errorf("%w: --rounds %d: want at least 1", errUsage, o.Rounds)
			}
			if !engine {
				return a.probeServer(c.Context(), o)
			}
			return a.withTarget(c, func(s *local.Session, t probe.EngineTarget) error {
				return a.probe(c.Context(), t, o, "engine "+s.Engine.Version())
			})
		},
	}
	c.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "how often")
	c.Flags().BoolVar(&engine, "engine", false, "probe the engine itself, in this process, instead of the server")
	c.Flags().StringVar(&o.Environment, "environment", "", "name of the place, for the report")
	return c
}

// probeServer probes the API and the data plane of the server.
func (a *app) probeServer(ctx context.Context, o probe.Options) error {
	s, err := a.server()
	if err != nil {
		return err
	}
	return a.withAPI(ctx, func(ctx context.Context, api *client.Client) error {
		if _, err := api.Health(ctx); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		return a.probe(ctx, probe.NewHTTPTarget(api, baseTemplate), o, "API "+s.API)
	})
}

func (a *app) probe(ctx context.Context, t probe.Target, o probe.Options, what string) error {
	if o.Environment == "" {
		o.Environment = fmt.Sprintf("%s, Linux %s, %d CPUs", what, bench.ThisMachine().Kernel, runtime.NumCPU())
	}
	step := a.progress().Begin(fmt.Sprintf("%d rounds", o.Rounds))
	step.Grow(o.Rounds)
	o.Each = func(probe.Round) { step.Add(1) }
	r := probe.Run(ctx, t, o)
	step.Done(r.Result)
	if err := a.print(r, func(w io.Writer) error { return probeTable(w, r) }); err != nil {
		return err
	}
	if r.Result != probe.Pass {
		return fmt.Errorf("probe: %w", errCheck)
	}
	return nil
}

// probeTable writes a line for each round, and every check that failed.
func probeTable(w io.Writer, r probe.Report) error {
	for _, round := range r.Rounds {
		held := 0
		var failed []string
		for name, ok := range round.Checks {
			if ok {
				held++
			} else {
				failed = append(failed, name)
			}
		}
		sort.Strings(failed)
		s := round.States["before_snapshot"]
		fmt.Fprintf(w, "round %2d  %2d checks held  pid %-4d counter %-4d identity %s  snapshot %3.0f ms  rollback %3.0f ms\n",
			round.Round, held, s.PID, s.Counter, cell(s.Identity), 1000*round.Seconds["snapshot"], 1000*round.Seconds["rollback"])
		for _, name := range failed {
			fmt.Fprintf(w, "          FAILED %s\n", cell(name))
		}
		if round.Error != "" {
			fmt.Fprintf(w, "          ERROR %s\n", cell(round.Error))
		}
	}
	for _, id := range r.Remaining {
		fmt.Fprintf(w, "          LEFT %s\n", id)
	}
	if r.Error != "" {
		fmt.Fprintf(w, "          ERROR %s\n", cell(r.Error))
	}
	_, err := fmt.Fprintf(w, "%s: %d rounds, %d sandboxes and %d snapshots left\n", r.Result, len(r.Rounds), r.SandboxesRemaining, r.SnapshotsRemaining)
	return err
}
