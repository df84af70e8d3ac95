package http

import (
	"net/http"

	"cubesandbox/http/openapi"
)

// collect frees what nothing needs.
func (a *API) collect(c *call) (answer, error) {
	var q openapi.CollectRequest
	if err := read(c.r, &q); err != nil {
		return answer{}, err
	}
	found, err := a.svc.Collect(c.ctx(), q.DryRun != nil && *q.DryRun)
	if err != nil {
		return answer{}, err
	}
	out := make([]openapi.Garbage, len(found))
	for i, g := range found {
		out[i] = openapi.Garbage{Kind: openapi.GarbageKind(g.Kind), Name: g.Name, Bytes: g.Bytes, Why: g.Why}
	}
	return answer{status: http.StatusOK, body: out}, nil
}
