package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"cubesandbox/client"
)

func (a *app) snapshotVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "verify SNAPSHOT...", Short: "Have the server read snapshots whole, and compare them with what was saved",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeSnapshots, Example: "  cube snapshot verify ready",
		RunE: func(c *cobra.Command, args []string) error { return a.verifyImages(c.Context(), snapshotID, args) },
	}
}

// verifyImages verifies every image that is named, also after one of them has failed,
// and prints those that are sound.
func (a *app) verifyImages(ctx context.Context, find func(context.Context, *client.Client, string) (string, error), args []string) error {
	return a.withAPI(ctx, func(ctx context.Context, api *client.Client) error {
		sound := []client.Verified{}
		var failed []error
		for _, arg := range args {
			id, err := find(ctx, api, arg)
			var v client.Verified
			if err == nil {
				v, err = api.VerifyImage(ctx, id)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("verify %s: %w", arg, err))
				continue
			}
			sound = append(sound, v)
		}
		if len(sound) > 0 {
			if err := a.print(sound, func(w io.Writer) error { return verifiedTable(w, sound) }); err != nil {
				return err
			}
		}
		return errors.Join(failed...)
	})
}

func verifiedTable(w io.Writer, all []client.Verified) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, v := range all {
		level := "published"
		if v.Durable {
			level = "durable"
		}
		fmt.Fprintf(t, "%s\tsound\t%s\t%s\n", v.ID, level, size(v.Bytes))
	}
	return t.Flush()
}
