package lab

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"cubesandbox/client"
)

// Shell runs a line in a sandbox, as root, and returns what it says.
func Shell(ctx context.Context, api *client.Client, b client.Sandbox, line string) (string, error) {
	g, err := api.Guest(b.ID, b.AccessToken)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	exit, err := g.Run(ctx, client.Command{Argv: []string{"/bin/sh", "-c", line}, User: "root", Stdout: &out})
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("%s: exit status %d", line, exit.Code)
	}
	return strings.TrimSpace(out.String()), err
}
