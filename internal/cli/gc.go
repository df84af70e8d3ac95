package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	cube "cubesandbox"
	"cubesandbox/client"
)

func (a *app) gcCommand() *cobra.Command {
	dry := false
	c := &cobra.Command{
		Use: "gc", Short: "Free what nothing on the disk of the server needs", Args: cobra.NoArgs,
		Long:    "The server does so by itself, at start and from time to time.",
		Example: "  cube gc --dry-run",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withAPI(c.Context(), func(ctx context.Context, api *client.Client) error {
				found, err := api.Collect(ctx, dry)
				if err != nil {
					return fmt.Errorf("collect garbage: %w", err)
				}
				return a.print(found, func(w io.Writer) error { return garbageTable(w, found, dry) })
			})
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "say what would be freed, and free nothing")
	return c
}

func garbageTable(w io.Writer, found []cube.Garbage, dry bool) error {
	did := "freed"
	if dry {
		did = "would be freed"
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	if len(found) > 0 {
		fmt.Fprintln(t, "KIND\tNAME\tSIZE\tWHY")
	}
	var all int64
	for _, g := range found {
		all += g.Bytes
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", g.Kind, g.Name, size(g.Bytes), g.Why)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s %s\n", size(all), did)
	return err
}

// size is a number of bytes for a person.
func size(bytes int64) string {
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	n, units := float64(bytes)/1024, []string{"KiB", "MiB", "GiB", "TiB"}
	for n >= 1024 && len(units) > 1 {
		n, units = n/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %s", n, units[0])
}
