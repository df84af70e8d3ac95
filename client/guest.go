package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/envdpb/process/processconnect"
)

// Guest is the inside of one sandbox: programs and files. It stays the same through
// pause, resume and rollback.
type Guest struct {
	c       *Client
	id      cube.SandboxID
	token   string
	process processconnect.ProcessClient
	// patience is for how long it may not answer while Run goes on.
	patience time.Duration
}

// maxRPC bounds a message of the agent, in bytes.
const maxRPC = 8 << 20

// Guest returns the inside of a sandbox. token is its access token, empty for one
// that asks for none. Nothing is sent before the first call.
func (c *Client) Guest(id cube.SandboxID, token string) (*Guest, error) {
	if c.data == nil {
		return nil, fmt.Errorf("sandbox %s: no address of the data plane: %w", id, cube.ErrInvalid)
	}
	g := &Guest{c: c, id: id, token: token, patience: runPatience}
	hc := &http.Client{Transport: g, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	g.process = processconnect.NewProcessClient(hc, c.data.String(),
		connect.WithReadMaxBytes(maxRPC), connect.WithSendMaxBytes(maxRPC), connect.WithAcceptCompression("gzip", nil, nil))
	return g, nil
}

// RoundTrip sends a request to the agent of the sandbox. What the data plane refuses
// is an *Error; what the agent answers is left as it is.
func (g *Guest) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("E2b-Sandbox-Id", string(g.id))
	r.Header.Set("E2b-Sandbox-Port", strconv.Itoa(agentapi.EnvdPort))
	r.Header.Set("User-Agent", g.c.o.UserAgent)
	if g.token != "" {
		r.Header.Set("X-Access-Token", g.token)
	}
	res, err := g.c.transport.RoundTrip(r)
	if err != nil {
		return nil, unreachable(r.Context(), g.c.data, err)
	}
	if res.StatusCode < 400 {
		return res, nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxMessage))
	if err != nil {
		return nil, err
	}
	if ofAgent(res, body) {
		res.Body = io.NopCloser(bytes.NewReader(body))
		return res, nil
	}
	return nil, parseError(res, body)
}

// ofAgent reports whether an answer is an error of the agent's RPC: its code is a
// word, while that of the data plane is the status.
func ofAgent(res *http.Response, body []byte) bool {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	var e struct {
		Code string `json:"code"`
	}
	return kind == "application/json" && json.Unmarshal(body, &e) == nil && e.Code != ""
}

// asUser says on whose behalf a request is; empty is the template's default user.
func asUser(h http.Header, user string) {
	if user != "" {
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
}
