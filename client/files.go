package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// ReadFile opens a file in a sandbox as a user; empty: the default one. The caller
// closes what it gets.
func (g *Guest) ReadFile(ctx context.Context, user, path string) (io.ReadCloser, error) {
	res, err := g.files(ctx, http.MethodGet, user, path, nil)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return res.Body, nil
}

// WriteFile writes a file in a sandbox as a user, with the folders above it.
func (g *Guest) WriteFile(ctx context.Context, user, path string, content io.Reader) error {
	res, err := g.files(ctx, http.MethodPost, user, path, content)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxMessage))
	return err
}

func (g *Guest) files(ctx context.Context, method, user, path string, content io.Reader) (*http.Response, error) {
	query := url.Values{"path": {path}}
	if user != "" {
		query.Set("username", user)
	}
	req, err := http.NewRequestWithContext(ctx, method, g.c.data.String()+"/files?"+query.Encode(), content)
	if err != nil {
		return nil, err
	}
	asUser(req.Header, user)
	req.Header.Set("Accept-Encoding", "identity")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	return g.success(req)
}

// success sends a request and makes every answer that is no success an error.
func (g *Guest) success(req *http.Request) (*http.Response, error) {
	res, err := g.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		defer res.Body.Close()
		return nil, readError(res)
	}
	return res, nil
}

// Health returns when the agent has answered.
func (g *Guest) Health(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.c.data.String()+"/health", nil)
	if err != nil {
		return err
	}
	res, err := g.success(req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}
