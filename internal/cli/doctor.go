package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"cubesandbox/client"
	"cubesandbox/internal/cli/doctor"
)

// answerTime bounds how long doctor waits for the server.
const answerTime = 3 * time.Second

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Say what this machine lacks, and how to mend it", Args: cobra.NoArgs,
		Long:    "Looks at kernel, limits, programs, files and ports. It changes nothing. Exit status 3 when\nsomething fails; a warning is none.",
		Example: "  cube doctor\n  cube doctor --json",
		RunE: func(c *cobra.Command, _ []string) error {
			conf, err := a.machine(c.Context())
			if err != nil {
				return err
			}
			found := doctor.Run(c.Context(), conf)
			if err := a.print(found, func(w io.Writer) error { return findings(w, found) }); err != nil {
				return err
			}
			if doctor.Worst(found) == doctor.Fail {
				return fmt.Errorf("doctor: %w", errCheck)
			}
			return nil
		},
	}
}

// machine is this one, and the server that we would ask.
func (a *app) machine(ctx context.Context) (doctor.Config, error) {
	s, err := a.server()
	if err != nil {
		return doctor.Config{}, err
	}
	c := doctor.Config{Root: "/", UID: os.Geteuid(), Arch: runtime.GOARCH, StateDir: a.where.StateDir, BinDir: a.where.BinDir}
	c.Server = doctor.Server{API: hostPort(s.API), Data: hostPort(s.Sandbox), Version: s.Version, Ours: a.version, Elsewhere: s.StateDir == ""}
	api, err := client.New(client.Options{APIURL: s.API})
	if err != nil {
		return c, err
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err = api.Health(ctx)
	c.Server.Answers = err == nil
	if err != nil && !errors.Is(err, client.ErrUnreachable) {
		c.Server.Error = fmt.Sprintf("%s: %v", s.API, err)
	}
	return c, nil
}

func hostPort(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	if u.Port() == "" {
		return u.Host + map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	}
	return u.Host
}

func findings(w io.Writer, all []doctor.Finding) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	count := map[doctor.Level]int{}
	for _, f := range all {
		count[f.Level]++
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Level, f.Check, f.Found)
		if f.Mend != "" {
			fmt.Fprintf(t, "\t\t-> %s\n", f.Mend)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d ok, %d warnings, %d failed\n", count[doctor.OK], count[doctor.Warn], count[doctor.Fail])
	return err
}
