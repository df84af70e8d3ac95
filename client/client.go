// Package client speaks to a Cube server: to its API (sandboxes, snapshots,
// templates) and, through its data plane, to what runs inside a sandbox.
//
// Errors are those of the root package where one fits: errors.Is(err,
// cube.ErrNotFound) works across the wire. What the server said is an *Error.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	cube "cubesandbox"
)

// Options say where a server is, and who asks.
type Options struct {
	// APIURL and SandboxURL are those of the API and of the data plane. The second
	// is needed by what works inside a sandbox only.
	APIURL, SandboxURL string
	// Key is the API key; empty for a server that asks for none.
	Key string
	// UserAgent names the caller; empty: "cube-client".
	UserAgent string
	// Log gets a line for each answer of the API; nil drops it.
	Log *slog.Logger
}

// Client speaks to one server. Its methods may be called at the same time. It
// keeps connections open between calls; Close closes them.
type Client struct {
	o         Options
	api, data *url.URL // data is nil where no SandboxURL was given
	transport *http.Transport
}

// Bounds of what a server may send.
const (
	maxAnswer  = 64 << 20 // bytes, of an answer of the API
	maxMessage = 64 << 10 // bytes, of an error
)

// New returns a client. Nothing is sent before the first call.
func New(o Options) (*Client, error) {
	if o.UserAgent == "" {
		o.UserAgent = "cube-client"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{o: o, transport: &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		Proxy:                  http.ProxyFromEnvironment,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        5 * time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
	}}
	var err error
	if c.api, err = parseURL("API", o.APIURL); err != nil {
		return nil, err
	}
	if o.SandboxURL != "" {
		c.data, err = parseURL("data plane", o.SandboxURL)
	}
	return c, err
}

func parseURL(what, s string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(s, "/"))
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		err = fmt.Errorf("want http://HOST:PORT")
	}
	if err != nil {
		return nil, fmt.Errorf("address of the %s %q: %w: %w", what, s, cube.ErrInvalid, err)
	}
	return u, nil
}

// Close closes the connections that no call uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// call is one request to the API. path begins with "/" and is escaped already.
type call struct {
	method, path string
	query        url.Values
	body         any    // nil: none
	key          string // idempotency key; empty: none
}

// do sends a call and reads its answer into out, unless that is nil. It returns the
// header of the answer.
func (c *Client) do(ctx context.Context, r call, out any) (http.Header, error) {
	req, err := c.request(ctx, r)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	res, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, unreachable(ctx, c.api, err)
	}
	defer res.Body.Close()
	c.o.Log.Debug("answered", "method", r.method, "path", r.path, "status", res.StatusCode, "took", time.Since(began),
		"phases", res.Header.Get("Server-Timing"), "request", res.Header.Get("X-Request-Id"))
	if res.StatusCode/100 != 2 {
		return res.Header, readAPIError(res)
	}
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	} else {
		err = json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(out)
	}
	if err != nil {
		return res.Header, fmt.Errorf("answer to %s %s: %w", r.method, r.path, err)
	}
	return res.Header, nil
}

func (c *Client) request(ctx context.Context, r call) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		b, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	u := c.api.String() + r.path
	if len(r.query) > 0 {
		u += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u, body)
	if err != nil {
		return nil, err
	}
	// A server that serves E2B's clients by default is told that this is none.
	req.Header.Set("X-Cube-Dialect", "cube")
	req.Header.Set("User-Agent", c.o.UserAgent)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if c.o.Key != "" {
		req.Header.Set("X-API-Key", c.o.Key)
	}
	return req, nil
}
