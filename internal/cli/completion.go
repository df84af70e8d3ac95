package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cubesandbox/client"
)

// completionTime bounds how long somebody who pressed TAB waits for ids.
const completionTime = 700 * time.Millisecond

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Print a script that completes commands, flags and ids",
		Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs), ValidArgs: []string{"bash", "zsh", "fish"},
		Example: "  source <(cube completion bash)\n  cube completion zsh >\"${fpath[1]}/_cube\"\n  cube completion fish | source",
		RunE: func(c *cobra.Command, args []string) error {
			switch root := c.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			default:
				return root.GenFishCompletion(a.out, true)
			}
		},
	}
}

// complete asks the server for what could be meant. It is silent when that fails:
// nobody can read an error in the middle of a line that is being typed.
func (a *app) complete(c *cobra.Command, ask func(context.Context, *client.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completionTime)
	defer cancel()
	var out []string
	err := a.withAPI(ctx, func(ctx context.Context, api *client.Client) (err error) {
		out, err = ask(ctx, api)
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// candidate is a word and what a shell may show beside it.
func candidate(word, what string) string { return word + "\t" + what }

// completeSandboxes completes any number of ids.
func (a *app) completeSandboxes(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.complete(c, func(ctx context.Context, api *client.Client) ([]string, error) {
		all, err := api.List(ctx, client.Query{})
		var out []string
		for _, s := range all {
			if strings.HasPrefix(string(s.ID), typed) {
				out = append(out, candidate(string(s.ID), fmt.Sprintf("%s, from %s", s.State, madeFrom(s))))
			}
		}
		return out, err
	})
}

// completeEnded completes any number of ids of sandboxes that can be brought back.
func (a *app) completeEnded(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.complete(c, func(ctx context.Context, api *client.Client) ([]string, error) {
		all, err := api.Recoverable(ctx)
		var out []string
		for _, e := range all {
			if strings.HasPrefix(string(e.ID), typed) {
				out = append(out, candidate(string(e.ID), fmt.Sprintf("ended: %s, back to %s", e.Reason, e.Recovery)))
			}
		}
		return out, err
	})
}

// completeSandbox completes one id.
func (a *app) completeSandbox(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeSandboxes(c, args, typed)
}

// completeSnapshots completes ids and names.
func (a *app) completeSnapshots(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.complete(c, func(ctx context.Context, api *client.Client) ([]string, error) {
		all, err := api.Snapshots(ctx, "")
		var out []string
		for _, s := range all {
			for _, word := range append(s.Names, string(s.ID)) {
				if strings.HasPrefix(word, typed) {
					out = append(out, candidate(word, "snapshot of "+string(s.Source)))
				}
			}
		}
		return out, err
	})
}

// completeTemplates completes what sandboxes can be made from.
func (a *app) completeTemplates(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	snapshots, _ := a.completeSnapshots(c, args, typed)
	templates, directive := a.completeTemplateNames(c, args, typed)
	return append(templates, snapshots...), directive
}

// completeTemplateNames completes templates only.
func (a *app) completeTemplateNames(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.complete(c, func(ctx context.Context, api *client.Client) ([]string, error) {
		all, err := api.Templates(ctx)
		var out []string
		for _, t := range all {
			for _, word := range append(t.Names, string(t.ID)) {
				if strings.HasPrefix(word, typed) {
					out = append(out, candidate(word, "template"))
				}
			}
		}
		return out, err
	})
}

// completeRollback completes a sandbox, then a snapshot.
func (a *app) completeRollback(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.completeSandboxes(c, args, typed)
	case 1:
		return a.completeSnapshots(c, args, typed)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
