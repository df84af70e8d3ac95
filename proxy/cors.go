package proxy

import (
	"net/http"

	cube "cubesandbox"
)

// pages lets pages of any origin talk to an agent that asks for its token, as envd
// does, and reports whether that was the question (a preflight), which is answered
// without the sandbox. An agent that asks for no token would take orders from every
// page that its user opens; other ports say themselves who may read them.
func (p *Proxy) pages(w http.ResponseWriter, r *http.Request, t target, route cube.Route) (answered bool) {
	if t.port != envdPort || route.AccessToken == "" || r.Header.Get("Origin") == "" {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	// "*" does not stand for Authorization (Fetch, 4.9), which names the user.
	h.Set("Access-Control-Allow-Headers", "*, Authorization")
	h.Set("Access-Control-Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
	return true
}
