package http

import (
	"net/http"

	cube "cubesandbox"
	"cubesandbox/http/openapi"
)

// plans says what verbs are under way, and how far.
func (a *API) plans(c *call) (answer, error) {
	all, err := a.svc.Plans(c.ctx())
	if err != nil {
		return answer{}, err
	}
	out := make([]openapi.Plan, len(all))
	for i, s := range all {
		out[i] = plan(s)
	}
	return answer{status: http.StatusOK, body: out}, nil
}

func plan(s cube.PlanState) openapi.Plan {
	p := openapi.Plan{
		PlanID: s.Plan.ID, Verb: openapi.PlanVerb(s.Plan.Verb), SandboxID: some(string(s.Plan.Sandbox)), ImageID: some(string(s.Plan.Image)),
		BeganAt: s.Plan.BeganAt.UTC(), Ahead: s.Ahead, Steps: make([]openapi.PlanStep, len(s.Steps)),
	}
	if len(s.Plan.Made) > 0 {
		made := make([]string, len(s.Plan.Made))
		for i, id := range s.Plan.Made {
			made[i] = string(id)
		}
		p.Made = &made
	}
	for i, step := range s.Steps {
		p.Steps[i] = openapi.PlanStep{Name: step.Name, Done: step.Done}
	}
	return p
}
