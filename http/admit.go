package http

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The dialects.
const (
	dialectE2B  = "e2b"
	dialectCube = "cube"
)

// dialectHeader is how a client of ours says which dialect it speaks.
const dialectHeader = "X-Cube-Dialect"

// dialectOf tells which dialect a client speaks: by its word, by its name, by its
// route.
func (a *API) dialectOf(r *http.Request) string {
	switch d := r.Header.Get(dialectHeader); d {
	case dialectE2B, dialectCube:
		return d
	}
	if strings.HasPrefix(r.UserAgent(), "e2b-") || strings.HasPrefix(r.URL.Path, "/v2/") && !isCubes(r) {
		return dialectE2B
	}
	return a.conf.Dialect
}

// isCubes reports whether a /v2 path is one that CubeSandbox has too: its client
// names itself python-requests, E2B's never do.
func isCubes(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/v2/sandboxes" && strings.HasPrefix(r.UserAgent(), "python-requests/")
}

// refusal is an answer to who may not ask.
type refusal struct {
	status  int
	message string
}

// admit decides whether a request may be answered, and sets the headers that say
// to browsers who may read the answer.
func (a *API) admit(c *call, rt route) *refusal {
	if a.conf.Key == "" {
		return fromHere(c.r)
	}
	cors(c.w.Header(), c.r)
	if c.r.Method == http.MethodOptions || rt.op == "health" {
		return nil
	}
	switch given := credentials(c.r); {
	case len(given) == 0:
		return &refusal{http.StatusUnauthorized, "No API key: send it in the header X-API-Key, or as Authorization: Bearer. The server made it at its first start; `cube env` on its machine prints it"}
	case !slices.ContainsFunc(given, a.isKey):
		return &refusal{http.StatusUnauthorized, "Invalid API key: `cube env` on the server's machine prints the right one"}
	}
	return nil
}

// credentials are the keys that a client gives. E2B's send two where its user has
// logged in, of which one is of no interest to us.
func credentials(r *http.Request) []string {
	var given []string
	scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") && bearer != "" {
		given = append(given, bearer)
	}
	if key := r.Header.Get("X-API-Key"); key != "" {
		given = append(given, key)
	}
	return given
}

func (a *API) isKey(given string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(a.conf.Key)) == 1
}

// cors lets pages of any origin ask, for they need the key.
func cors(h http.Header, r *http.Request) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*, X-Request-Id, X-Next-Token, X-Total-Running, Retry-After, Server-Timing")
	if r.Method != http.MethodOptions {
		return
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE, OPTIONS")
	// "*" does not stand for Authorization (Fetch, 4.9).
	h.Set("Access-Control-Allow-Headers", "*, Authorization, X-API-Key, Content-Type")
	h.Set("Access-Control-Max-Age", "86400")
}

// fromHere refuses, where no key protects us, what a browser can be made to send:
// requests under a name that only resolves to us, and those of foreign pages.
func fromHere(r *http.Request) *refusal {
	if !isLoopback(r.Host) {
		return &refusal{http.StatusForbidden, "This server asks for no key and is for this machine only: call it as localhost or 127.0.0.1"}
	}
	if o := r.Header.Get("Origin"); o != "" {
		u, err := url.Parse(o)
		if err != nil || !isLoopback(u.Host) {
			return &refusal{http.StatusForbidden, "This server asks for no key, so pages of other origins may not call it"}
		}
	}
	return nil
}

func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
