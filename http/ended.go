package http

import (
	"net/http"

	cube "cubesandbox"
	"cubesandbox/http/openapi"
)

// recover brings one that has died back from its newest snapshot.
func (a *API) recover(c *call) (answer, error) {
	id, err := c.box()
	if err != nil {
		return answer{}, err
	}
	r, err := a.svc.Recover(c.ctx(), id)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: a.sandbox(r)}, nil
}

// endedLimit is how many that have ended are listed, and may be.
const endedLimit = 1000

// ended lists those that are no more, and says from what they can be brought back.
func (a *API) ended(c *call) (answer, error) {
	v := c.r.URL.Query()
	most, err := limitTo(v.Get("limit"), endedLimit)
	if err != nil {
		return answer{}, err
	}
	only, err := truth(c, "recoverable")
	if err != nil {
		return answer{}, err
	}
	all, err := a.svc.Ended(c.ctx())
	if err != nil {
		return answer{}, err
	}
	out := []openapi.EndedSandbox{}
	for _, r := range all { // the last first
		if e := endedSandbox(r); len(out) < most && (e.Recoverable || !only) {
			out = append(out, e)
		}
	}
	return answer{status: http.StatusOK, body: out}, nil
}

func endedSandbox(r cube.Record) openapi.EndedSandbox {
	e := openapi.EndedSandbox{
		SandboxID: string(r.ID), TemplateID: string(r.Template), Alias: some(r.Alias), StartedAt: r.StartedAt.UTC(),
		EndedAt: r.ChangedAt.UTC(), Reason: string(cube.DeathUnknown),
	}
	if d := r.End; d != nil {
		e.EndedAt, e.Reason, e.Detail = d.At.UTC(), string(d.Reason), some(d.Detail)
	}
	if r.Recoverable && r.Image != "" {
		e.Recoverable, e.RecoverySnapshotID = true, some(string(r.Image))
		if back := r.Phase == cube.PhaseRecovering; back {
			e.Returning = &back
		}
	}
	return e
}
