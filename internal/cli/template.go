package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	cube "cubesandbox"
	"cubesandbox/internal/local"
)

func (a *app) templateCommand() *cobra.Command {
	c := &cobra.Command{Use: "template", Short: "Images that sandboxes start from", Args: cobra.NoArgs, RunE: help}
	fresh := false
	build := &cobra.Command{
		Use:   "build NAME",
		Short: "Make a template, or find that it is there",
		Long: "NAME is a folder with a template.toml, or the name of one under $CUBE_TEMPLATES,\n" +
			"./templates, or the templates folder beside this program's.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(s *local.Session) error {
				img, err := s.Build(c.Context(), args[0], fresh)
				if err != nil {
					return fmt.Errorf("build template %s: %w", args[0], err)
				}
				return a.print(img, func(w io.Writer) error {
					_, err := fmt.Fprintln(w, img.ID)
					return err
				})
			})
		},
	}
	build.Flags().BoolVar(&fresh, "fresh", false, "make its root file system anew, with today's packages")
	ls := &cobra.Command{
		Use: "ls", Short: "List the templates that are there", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.with(c.Context(), a.listTemplates) },
	}
	rm := &cobra.Command{
		Use: "rm NAME|ID...", Short: "Remove templates; sandboxes that were made from them run on", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(s *local.Session) error { return a.removeTemplates(s, args) })
		},
	}
	c.AddCommand(build, ls, rm)
	return c
}

// listed is one line of `cube template ls`.
type listed struct {
	Names []string `json:"names"`
	cube.Image
}

func (a *app) listTemplates(s *local.Session) error {
	images, err := s.Images.Images()
	if err != nil {
		return err
	}
	names, err := s.Names()
	if err != nil {
		return err
	}
	out := []listed{}
	for _, img := range images {
		if img.Kind != cube.KindTemplate {
			continue
		}
		l := listed{Names: []string{}, Image: img}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if names[name] == img.ID {
				l.Names = append(l.Names, name)
			}
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b listed) int { return cmp.Compare(strings.Join(a.Names, ","), strings.Join(b.Names, ",")) })
	return a.print(out, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		fmt.Fprintln(t, "NAME\tID\tMEMORY\tCPUS\tSIZE\tCREATED")
		for _, l := range out {
			fmt.Fprintf(t, "%s\t%s\t%d MiB\t%d\t%d MB\t%s\n", strings.Join(l.Names, ","), l.ID, l.Limits.MemoryMiB, l.Limits.CPUs, l.Bytes/1e6, l.Created.Format("2006-01-02 15:04"))
		}
		return t.Flush()
	})
}

func (a *app) removeTemplates(s *local.Session, args []string) error {
	removed := []cube.ImageID{}
	for _, arg := range args {
		id, err := s.RemoveTemplate(arg)
		if err != nil {
			return fmt.Errorf("remove template %s: %w", arg, err)
		}
		removed = append(removed, id)
	}
	return a.print(removed, func(w io.Writer) error {
		for _, id := range removed {
			if _, err := fmt.Fprintln(w, id); err != nil {
				return err
			}
		}
		return nil
	})
}
