package agentclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/envdpb/filesystem/filesystemconnect"
	"cubesandbox/guest/envdpb/process/processconnect"

	"connectrpc.com/connect"
)

// maxMessage bounds an RPC message, in bytes.
const maxMessage = 8 << 20

// Client talks to envd in one life of a sandbox: it runs programs and carries
// files. It keeps connections open between
// calls; Close closes them. Its methods may be called concurrently.
type Client struct {
	// Process and Files are envd's services. The access token is added.
	Process processconnect.ProcessClient
	Files   filesystemconnect.FilesystemClient

	transport *http.Transport
	token     string
}

// New returns a client. token is the sandbox's access token, empty for none.
func New(dial Dialer, token string) *Client {
	c := &Client{token: token}
	c.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			_, text, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, err
			}
			return dial(ctx, uint16(port))
		},
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswer,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        10 * time.Minute,
		ForceAttemptHTTP2:      false,
	}
	hc := &http.Client{Transport: c, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	opts := []connect.ClientOption{
		connect.WithReadMaxBytes(maxMessage), connect.WithSendMaxBytes(maxMessage),
		connect.WithAcceptCompression("gzip", nil, nil), // none
	}
	c.Process = processconnect.NewProcessClient(hc, envdURL, opts...)
	c.Files = filesystemconnect.NewFilesystemClient(hc, envdURL, opts...)
	return c
}

var envdURL = "http://guest:" + strconv.Itoa(agentapi.EnvdPort)

// RoundTrip adds the access token; it is what makes a Client an http.RoundTripper
// for the sandbox.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.token != "" && r.Header.Get("X-Access-Token") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("X-Access-Token", c.token)
	}
	res, err := c.transport.RoundTrip(r)
	if err == nil && res.StatusCode == http.StatusSwitchingProtocols {
		// Nobody has asked for that, and net/http then lets go of the connection: the end
		// of the request's context would not end it.
		res.Body.Close()
		return nil, fmt.Errorf("%w: it switches protocols", cube.ErrAgent)
	}
	return res, err
}

// Close closes the connections that no call uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// firstLine makes a text from a sandbox fit for an error message.
func firstLine(b []byte) string {
	line, _, _ := strings.Cut(string(b[:min(len(b), 512)]), "\n")
	return strconv.QuoteToGraphic(line)
}
