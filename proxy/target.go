package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	cube "cubesandbox"
)

// Headers that say which sandbox and port are meant (E2B).
const (
	idHeader   = "E2b-Sandbox-Id"
	portHeader = "E2b-Sandbox-Port"
)

// Ports of the agent: envd's interface, and the server's own, which nobody else
// gets to.
const (
	envdPort    = 49983
	controlPort = 49982
)

// pathPrefix begins the path form: /sandbox/ID/PORT/…
const pathPrefix = "/sandbox/"

// target is where a request wants to go.
type target struct {
	id   cube.SandboxID
	port uint16
	// prefix is what of the path named the target, to be taken off; escaped.
	prefix string
}

// refusal is an answer that needs no sandbox.
type refusal struct {
	status  int
	message string
}

// answer is what the client hears, who may come again where it is for no fault of his.
func (f *refusal) answer() answer {
	a := answer{Message: f.message, Code: f.status}
	if f.status == http.StatusServiceUnavailable {
		a.retryAfter = 1
	}
	return a
}

// hostOnly is a Host header's name in lower case, without port and brackets.
// Brackets are for addresses alone.
func hostOnly(host string) (name string, ok bool) {
	name = host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	bracketed := strings.HasPrefix(host, "[")
	if bracketed && name == host {
		name = strings.TrimSuffix(name[1:], "]")
	}
	return strings.ToLower(name), name != "" && (!bracketed || net.ParseIP(name) != nil)
}

// targetOf finds out where a request wants to go: by host name; or, on localhost,
// an address or sandbox.DOMAIN, by headers, by path, or by signature.
func (p *Proxy) targetOf(r *http.Request) (target, *refusal) {
	host, ok := hostOnly(r.Host)
	switch {
	case r.Method == http.MethodConnect:
		return target{}, &refusal{http.StatusMethodNotAllowed, "This is no proxy for CONNECT: send requests to a sandbox's own host"}
	case !ok:
		return target{}, p.badHost(r.Host)
	case !p.neutral(host):
		return p.byHost(host)
	}
	if len(r.Header.Values(idHeader)) > 0 || len(r.Header.Values(portHeader)) > 0 {
		return byHeaders(r.Header)
	}
	if strings.HasPrefix(r.URL.Path, pathPrefix) {
		return byPath(r.URL)
	}
	if isLink(r, r.URL.Path) {
		return p.bySignature(r)
	}
	return target{}, &refusal{http.StatusBadRequest, "This is the data plane of sandboxes, and the request names none: use the host <port>-<sandbox id>." +
		p.domain + ", the headers " + idHeader + " and " + portHeader + ", or the path " + pathPrefix + "<sandbox id>/<port>/"}
}

// neutral reports whether a host name is that of the proxy, not of a sandbox.
func (p *Proxy) neutral(host string) bool {
	return host == "localhost" || host == p.domain || host == "sandbox."+p.domain || net.ParseIP(host) != nil
}

// byHost reads PORT-ID.DOMAIN.
func (p *Proxy) byHost(host string) (target, *refusal) {
	label, rest, _ := strings.Cut(host, ".")
	if rest != p.domain && rest != "localhost" {
		return target{}, p.badHost(host)
	}
	port, id, ok := strings.Cut(label, "-")
	if !ok {
		return target{}, p.badHost(host)
	}
	return newTarget(id, port, "")
}

func (p *Proxy) badHost(host string) *refusal {
	return &refusal{http.StatusBadRequest, fmt.Sprintf("Invalid host %.100q: want <port>-<sandbox id>.%s", host, p.domain)}
}

func byHeaders(h http.Header) (target, *refusal) {
	for _, name := range []string{idHeader, portHeader} {
		switch len(h.Values(name)) {
		case 1:
		case 0:
			return target{}, &refusal{http.StatusBadRequest, "Missing header: " + name}
		default:
			return target{}, &refusal{http.StatusBadRequest, "Header given more than once: " + name}
		}
	}
	// E2B's older clients give ID-CLIENT.
	id, _, _ := strings.Cut(h.Get(idHeader), "-")
	return newTarget(id, h.Get(portHeader), "")
}

func byPath(u *url.URL) (target, *refusal) {
	rest := strings.TrimPrefix(u.EscapedPath(), pathPrefix)
	id, rest, _ := strings.Cut(rest, "/")
	port, _, _ := strings.Cut(rest, "/")
	return newTarget(id, port, pathPrefix+id+"/"+port)
}

// newTarget checks the form of what a stranger sent.
func newTarget(id, port, prefix string) (target, *refusal) {
	sandbox, err := cube.ParseSandboxID(id)
	if err != nil {
		return target{}, &refusal{http.StatusBadRequest, fmt.Sprintf("Invalid sandbox id %.64q: want 32 lower-case hex digits", id)}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || port[0] == '0' {
		return target{}, &refusal{http.StatusBadRequest, fmt.Sprintf("Invalid sandbox port %.16q: want 1 to 65535", port)}
	}
	return target{sandbox, uint16(n), prefix}, nil
}
