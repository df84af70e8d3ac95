package lab

import (
	"context"
	"fmt"

	cube "cubesandbox"
	"cubesandbox/client"
)

// ChainLength is how many images a chain has, for tests of what must hold on chains too.
const ChainLength = 5

// Chain makes a sandbox whose memory has come through n snapshots by the API of a server:
// the first is saved, another is made from that and saved, and so on. work, unless nil,
// is done in each before it is saved, and in the last. The snapshots are in the order in
// which they were made; of the sandboxes the first and the last are left.
func Chain(ctx context.Context, api *client.Client, first client.Sandbox, n int, work func(context.Context, client.Sandbox) error) (last client.Sandbox, saved []client.Snapshot, err error) {
	last = first
	for {
		if work != nil {
			if err := work(ctx, last); err != nil {
				return last, saved, fmt.Errorf("link %d of a chain: %w", len(saved), err)
			}
		}
		if len(saved) == n {
			return last, saved, nil
		}
		snap, err := api.Snapshot(ctx, last.ID, "")
		if err != nil {
			return last, saved, fmt.Errorf("link %d of a chain: %w", len(saved), err)
		}
		saved = append(saved, snap)
		next, err := api.Create(ctx, client.NewSandbox{Template: string(snap.ID), Timeout: cube.NeverTimeout})
		if err == nil && last.ID != first.ID {
			err = api.Kill(ctx, last.ID)
		}
		if err != nil {
			return last, saved, fmt.Errorf("link %d of a chain: %w", len(saved), err)
		}
		last = next
	}
}
