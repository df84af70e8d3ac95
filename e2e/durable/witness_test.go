package durable

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// witnessProgram is what runs in every sandbox here; see its text.
//
//go:embed witness.py
var witnessProgram []byte

const (
	witnessPort = 7000
	witnessPath = "/root/witness.py"
	witnessDir  = "/root/witness"
)

// state is the whole of a witness: equal states are the same witness at the same
// moment.
type state struct {
	Memory   string `json:"memory"` // SHA-256 of 8 MiB that were random once
	Counter  int    `json:"counter"`
	PID      int    `json:"pid"`
	Env      string `json:"env"`
	Synced   string `json:"synced"` // lines and SHA-256 of a file
	Unsynced string `json:"unsynced"`
}

// inside reaches into one sandbox, with the token that it was given at create.
type inside struct {
	s *lab.Server
	b client.Sandbox
}

// start puts the witness into a sandbox.
func (in inside) start(ctx context.Context) error {
	g, err := in.s.API.Guest(in.b.ID, in.b.AccessToken)
	if err != nil {
		return err
	}
	if err := g.WriteFile(ctx, "root", witnessPath, bytes.NewReader(witnessProgram)); err != nil {
		return err
	}
	_, err = in.run(ctx, "/usr/bin/python3", witnessPath, witnessDir)
	return err
}

// run runs a program and returns what it says.
func (in inside) run(ctx context.Context, argv ...string) (string, error) {
	g, err := in.s.API.Guest(in.b.ID, in.b.AccessToken)
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	exit, err := g.Run(ctx, client.Command{Argv: argv, User: "root", Stdout: &out, Stderr: &errs})
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("sandbox %s: %s: exit status %d: %.200s", in.b.ID, argv[0], exit.Code, errs.String())
	}
	return strings.TrimSpace(out.String()), err
}

// state asks the witness, step has it go on, renew makes it another one.
func (in inside) state(ctx context.Context) (state, error) { return in.ask(ctx, http.MethodGet, "") }
func (in inside) step(ctx context.Context) (state, error) {
	return in.ask(ctx, http.MethodPost, "step")
}
func (in inside) renew(ctx context.Context) (state, error) {
	return in.ask(ctx, http.MethodPost, "renew")
}

func (in inside) ask(ctx context.Context, method, path string) (st state, err error) {
	r, err := http.NewRequestWithContext(ctx, method, in.s.API.PortURL(in.b.ID, witnessPort)+path, nil)
	if err != nil {
		return st, err
	}
	// A connection of its own: those of an earlier life are no use.
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return st, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %.200s", res.StatusCode, body)
	}
	if err == nil {
		err = json.Unmarshal(body, &st)
	}
	if err != nil {
		return st, fmt.Errorf("witness in %s: %w", in.b.ID, err)
	}
	return st, nil
}
