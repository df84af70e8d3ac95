package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

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
		Use: "ls", Aliases: []string{"list"}, Short: "List the templates that are there", Args: cobra.NoArgs,
		Long: "Asks the server, or looks itself where none answers. UNIQUE is what is free on disk once a template is\n" +
			"deleted and no sandbox runs that was made from it; SHARED is memory of it in pages that others need too.",
		RunE: func(c *cobra.Command, _ []string) error { return a.listTemplates(c.Context()) },
	}
	rm := &cobra.Command{
		Use: "rm NAME|ID...", Short: "Remove templates; sandboxes that were made from them run on", Args: cobra.MinimumNArgs(1),
		Long: "Asks the server, or does it itself where none answers.", ValidArgsFunction: a.completeTemplateNames,
		RunE: func(c *cobra.Command, args []string) error { return a.removeTemplates(c.Context(), args) },
	}
	verify := &cobra.Command{
		Use: "verify NAME|ID...", Short: "Have the server read templates whole, and compare them with what was saved",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeTemplateNames,
		RunE: func(c *cobra.Command, args []string) error { return a.verifyImages(c.Context(), templateID, args) },
	}
	c.AddCommand(build, ls, rm, verify)
	return c
}

// listed is one line of `cube template ls`.
type listed struct {
	Names     []string     `json:"names"`
	ID        cube.ImageID `json:"id"`
	MemoryMiB int64        `json:"memoryMiB"`
	CPUs      int          `json:"cpus"`
	Created   *time.Time   `json:"created,omitempty"`
	Unique    int64        `json:"uniqueBytes"`
	Shared    int64        `json:"sharedBytes"`
}

func (a *app) listTemplates(ctx context.Context) error {
	all, err := a.templates(ctx)
	if err != nil {
		return fmt.Errorf("list templates: %w", err)
	}
	slices.SortFunc(all, func(a, b listed) int { return cmp.Compare(strings.Join(a.Names, ","), strings.Join(b.Names, ",")) })
	return a.print(all, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		fmt.Fprintln(t, "NAME\tID\tMEMORY\tCPUS\tCREATED\tUNIQUE\tSHARED")
		for _, l := range all {
			fmt.Fprintf(t, "%s\t%s\t%d MiB\t%d\t%s\t%s\t%s\n", strings.Join(l.Names, ","), l.ID, l.MemoryMiB, l.CPUs, moment(l.Created), size(l.Unique), size(l.Shared))
		}
		return t.Flush()
	})
}

// templates asks the server, or looks here where none answers.
func (a *app) templates(ctx context.Context) (out []listed, err error) {
	api, err := a.served(ctx)
	if err != nil {
		return nil, err
	}
	if api == nil {
		err = a.with(ctx, func(s *local.Session) error {
			out, err = localTemplates(s)
			return err
		})
		return out, err
	}
	defer api.Close()
	all, err := api.Templates(ctx)
	out = make([]listed, len(all))
	for i, t := range all {
		out[i] = listed{append([]string{}, t.Names...), t.ID, t.MemoryMiB, t.CPUs, t.CreatedAt, t.Unique, t.Shared}
	}
	return out, err
}

func localTemplates(s *local.Session) ([]listed, error) {
	images, err := s.Images.Images()
	if err != nil {
		return nil, err
	}
	names, err := s.Names()
	if err != nil {
		return nil, err
	}
	out := []listed{}
	spaces := s.Images.Spaces()
	for _, img := range images {
		if img.Kind != cube.KindTemplate {
			continue
		}
		l := listed{[]string{}, img.ID, img.Limits.MemoryMiB, img.Limits.CPUs, &img.Created, spaces[img.ID].Unique, spaces[img.ID].Shared}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if names[name] == img.ID {
				l.Names = append(l.Names, name)
			}
		}
		out = append(out, l)
	}
	return out, nil
}

func (a *app) removeTemplates(ctx context.Context, args []string) error {
	api, err := a.served(ctx)
	if err != nil {
		return fmt.Errorf("remove templates: %w", err)
	}
	if api == nil {
		return a.with(ctx, func(s *local.Session) error {
			return a.removeImages(args, func(arg string) (string, error) {
				id, err := s.RemoveTemplate(arg)
				return string(id), err
			})
		})
	}
	defer api.Close()
	return a.removeImages(args, func(arg string) (string, error) {
		id, err := templateID(ctx, api, arg)
		if err == nil {
			err = api.DeleteImage(ctx, id)
		}
		return id, err
	})
}
