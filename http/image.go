package http

import (
	"net/http"
	"slices"
	"strings"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/http/openapi"
)

func (a *API) snapshot(c *call) (answer, error) {
	id, err := c.box()
	if err != nil {
		return answer{}, err
	}
	var q openapi.SnapshotRequest
	if err := read(c.r, &q); err != nil {
		return answer{}, err
	}
	if q.Memory != nil && !*q.Memory {
		return answer{}, notYetField("memory: false")
	}
	var o cube.Snapshotting
	if q.Name != nil {
		o.Name = *q.Name
	}
	if o.Key, err = c.key(); err != nil {
		return answer{}, err
	}
	s, err := a.svc.Snapshot(c.ctx(), id, o)
	if err != nil {
		return answer{}, err
	}
	c.made = []string{string(s.ID)}
	return answer{status: http.StatusCreated, body: snapshot(c, s, a.svc.Spaces(c.ctx()))}, nil
}

func snapshot(c *call, s cube.Snapshot, spaces map[cube.ImageID]cube.Space) openapi.Snapshot {
	names := []string{}
	if s.Name != "" {
		name := s.Name
		if c.e2b() {
			name += ":default"
		}
		names = append(names, name)
	}
	space := spaces[s.ID]
	ready, at := openapi.SnapshotStatus("READY"), s.CreatedAt.UTC()
	return openapi.Snapshot{
		SnapshotID: string(s.ID), Names: names, Status: &ready, OriginSandboxID: some(string(s.Source)), CreatedAt: &at, UpdatedAt: &at,
		Durable: &s.Durable, Level: level(s.Durable), UniqueBytes: &space.Unique, SharedBytes: &space.Shared,
	}
}

// level is what an image survives.
func level(durable bool) *openapi.Level {
	l := openapi.Published
	if durable {
		l = openapi.Durable
	}
	return &l
}

func (a *API) snapshots(c *call) (answer, error) {
	v := c.r.URL.Query()
	q := cube.SnapshotQuery{Name: v.Get("name"), Cursor: v.Get("nextToken")}
	var err error
	if q.Limit, err = limit(v.Get("limit")); err != nil {
		return answer{}, err
	}
	if s := v.Get("sandboxID"); s != "" {
		if q.Source, err = parseSandbox(s); err != nil {
			return answer{status: http.StatusOK, body: []openapi.Snapshot{}}, nil // of no sandbox of ours
		}
	}
	page, err := a.svc.Snapshots(c.ctx(), q)
	if err != nil {
		return answer{}, err
	}
	out := make([]openapi.Snapshot, len(page.Snapshots))
	spaces := a.svc.Spaces(c.ctx())
	for i, s := range page.Snapshots {
		out[i] = snapshot(c, s, spaces)
	}
	ans := answer{status: http.StatusOK, body: out, header: map[string]string{}}
	if page.Next != "" {
		ans.header["X-Next-Token"] = page.Next
	}
	return ans, nil
}

func (a *API) rollback(c *call) (answer, error) {
	id, err := c.box()
	if err != nil {
		return answer{}, err
	}
	var q openapi.RollbackRequest
	if err := read(c.r, &q); err != nil {
		return answer{}, err
	}
	if q.SnapshotID == "" {
		return answer{}, invalid("validation error: snapshotID is required: the id or name of a snapshot of this sandbox")
	}
	r, err := a.svc.Rollback(c.ctx(), id, q.SnapshotID)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusOK, body: openapi.RollbackResult{
		SandboxID: string(r.ID), SnapshotID: q.SnapshotID, OperationID: c.id, Status: "READY",
	}}, nil
}

func template(t cube.Template, space cube.Space) openapi.Template {
	names := t.Names
	if names == nil {
		names = []string{}
	}
	id, envd := string(t.Image.ID), agentapi.EnvdVersion
	ready := openapi.TemplateBuildStatus("ready")
	return openapi.Template{
		TemplateID: id, BuildID: &id, Names: names, Aliases: names, Public: false, Status: "READY", BuildStatus: &ready,
		CreatedAt: t.Image.Created.UTC(), UpdatedAt: t.Image.Created.UTC(),
		CpuCount: t.Image.Limits.CPUs, MemoryMB: t.Image.Limits.MemoryMiB, DiskSizeMB: t.Image.Limits.DiskMiB, EnvdVersion: &envd,
		Durable: &t.Image.Durable, Level: level(t.Image.Durable), UniqueBytes: &space.Unique, SharedBytes: &space.Shared,
	}
}

func (a *API) templates(c *call) (answer, error) {
	all, err := a.svc.Templates(c.ctx())
	if err != nil {
		return answer{}, err
	}
	out := make([]openapi.Template, len(all))
	spaces := a.svc.Spaces(c.ctx())
	for i, t := range all {
		out[i] = template(t, spaces[t.Image.ID])
	}
	return answer{status: http.StatusOK, body: out}, nil
}

// findTemplate finds one by id, or by name with or without a namespace and a tag.
func (a *API) findTemplate(c *call, idOrName string) (cube.Template, error) {
	all, err := a.svc.Templates(c.ctx())
	if err != nil {
		return cube.Template{}, err
	}
	name := strings.TrimSuffix(idOrName, ":default")
	name = name[strings.LastIndex(name, "/")+1:]
	for _, t := range all {
		if string(t.Image.ID) == name || slices.Contains(t.Names, name) {
			return t, nil
		}
	}
	return cube.Template{}, &statusError{http.StatusNotFound, "template " + idOrName + " not found"}
}

func (a *API) template(c *call) (answer, error) {
	t, err := a.findTemplate(c, c.r.PathValue("templateID"))
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusOK, body: template(t, a.svc.Spaces(c.ctx())[t.Image.ID])}, nil
}

func (a *API) alias(c *call) (answer, error) {
	t, err := a.findTemplate(c, c.r.PathValue("alias"))
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusOK, body: openapi.Alias{TemplateID: string(t.Image.ID)}}, nil
}

func (a *API) deleteTemplate(c *call) (answer, error) {
	id := c.r.PathValue("templateID")
	if err := a.svc.DeleteImage(c.ctx(), id); err != nil {
		return answer{}, err
	}
	c.made = []string{id}
	return answer{status: http.StatusNoContent, header: map[string]string{"X-Operation-Id": c.id}}, nil
}

// verify reads a template or snapshot whole.
func (a *API) verify(c *call) (answer, error) {
	im, err := a.svc.VerifyImage(c.ctx(), c.r.PathValue("imageID"))
	if err != nil {
		return answer{}, err
	}
	c.made = []string{string(im.ID)}
	return answer{status: http.StatusOK, body: openapi.VerifiedImage{ImageID: string(im.ID), Bytes: im.Bytes, Durable: im.Durable}}, nil
}
