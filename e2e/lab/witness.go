package lab

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
)

// witnessProgram holds one of everything; see its text.
//
//go:embed witness.py
var witnessProgram []byte

// Ports of the witness, on 127.0.0.1 inside.
const (
	witnessPort = 7000
	// EchoPort sends back every line.
	EchoPort = 7001
)

const (
	witnessPath = "/root/witness.py"
	witnessDir  = "/root/witness"
)

// saveWitness makes the image in which it runs.
func (l *Lab) saveWitness(ctx context.Context) (_ cube.ImageID, err error) {
	s, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Base})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, l.Engine.Kill(context.WithoutCancel(ctx), s.ID)) }()
	if err := l.WriteFile(ctx, s.ID, witnessPath, witnessProgram); err != nil {
		return "", err
	}
	out, err := l.Run(ctx, s.ID, "/usr/bin/python3", witnessPath, witnessDir)
	if err == nil && out.Exit != 0 {
		log, _ := l.ReadFile(ctx, s.ID, witnessDir+"/log")
		err = fmt.Errorf("exit status %d: %s%s%s", out.Exit, out.Stdout, out.Stderr, log)
	}
	if err != nil {
		return "", err
	}
	img, err := l.Engine.Save(ctx, s.ID, cube.NewSnapshotID())
	return img.ID, err
}

// request is one line to the witness, answer what it says.
type request struct {
	Op    string `json:"op"`
	Key   string `json:"key,omitempty"`
	Value string `json:"value,omitempty"`
	MiB   int    `json:"mib,omitempty"`
}

type answer struct {
	Error    string            `json:"error"`
	Value    string            `json:"value"`
	Results  map[string]string `json:"results"`
	Identity string            `json:"identity"`
	PID      int               `json:"pid"`
	Uses     int               `json:"uses"`
}

// ask sends one request over a connection of its own.
func ask(ctx context.Context, e cube.Engine, id cube.SandboxID, q request) (answer, error) {
	c, err := e.Dial(ctx, id, 0, witnessPort)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := json.NewEncoder(c).Encode(q); err != nil {
		return answer{}, err
	}
	line, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		return answer{}, fmt.Errorf("witness: %s: %w", q.Op, err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return answer{}, fmt.Errorf("witness: %s: answer %.100q: %w", q.Op, line, err)
	}
	if a.Error != "" {
		return answer{}, fmt.Errorf("witness: %s: %s", q.Op, a.Error)
	}
	return a, nil
}

// Put keeps a value in the witness's memory and in a file.
func Put(ctx context.Context, e cube.Engine, id cube.SandboxID, key, value string) error {
	_, err := ask(ctx, e, id, request{Op: "put", Key: key, Value: value})
	return err
}

// Get returns it from the memory, and fails when the file holds another.
func Get(ctx context.Context, e cube.Engine, id cube.SandboxID, key string) (string, error) {
	a, err := ask(ctx, e, id, request{Op: "get", Key: key})
	return a.Value, err
}

// Fill has the witness hold so many MiB of random memory.
func Fill(ctx context.Context, e cube.Engine, id cube.SandboxID, mib int) error {
	_, err := ask(ctx, e, id, request{Op: "fill", MiB: mib})
	return err
}

// Life is who the witness is: the same after every verb.
type Life struct {
	Identity string
	PID      int
	// Uses counts the checks that it has been through in this line of states.
	Uses int
}

// Check has the witness use everything that it holds, fails the test for what
// does not work, and returns who it is.
func (l *Lab) Check(t *testing.T, id cube.SandboxID) Life {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	a, err := ask(ctx, l.Engine, id, request{Op: "check"})
	if err != nil {
		t.Fatalf("sandbox %s: %v", id, err)
	}
	var broken []string
	for _, name := range slices.Sorted(maps.Keys(a.Results)) {
		if a.Results[name] != "ok" {
			broken = append(broken, name+": "+a.Results[name])
		}
	}
	if broken != nil || len(a.Results) != 7 {
		t.Errorf("sandbox %s: of the %d things that the witness holds these do not work:\n%s", id, len(a.Results), strings.Join(broken, "\n"))
	}
	return Life{a.Identity, a.PID, a.Uses}
}
