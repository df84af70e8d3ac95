package http

import (
	"encoding/json"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/http/openapi"
)

// sandbox is what create, connect and their like answer.
func (a *API) sandbox(r cube.Record) openapi.Sandbox {
	return openapi.Sandbox{
		TemplateID: string(r.Template), SandboxID: string(r.ID), ClientID: a.conf.NodeID, EnvdVersion: agentapi.EnvdVersion,
		Alias: some(r.Alias), EnvdAccessToken: some(r.Identity.AccessToken), TrafficAccessToken: some(r.TrafficToken), Domain: some(a.conf.Domain),
		Restored: restored(r),
	}
}

// restored is from what its current life began, if that is known.
func restored(r cube.Record) *openapi.Restored {
	if r.Restored == "" {
		return nil
	}
	from := openapi.Restored(r.Restored)
	return &from
}

// some is a pointer to a text, nil to an empty one.
func some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// listed is an entry of a list.
func (a *API) listed(c *call, r cube.Record) openapi.ListedSandbox {
	metadata := r.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	return openapi.ListedSandbox{
		TemplateID: string(r.Template), Alias: some(r.Alias), SandboxID: string(r.ID), ClientID: a.conf.NodeID,
		StartedAt: r.StartedAt.UTC(), EndAt: endAt(c, r), CpuCount: r.Limits.CPUs, MemoryMB: r.Limits.MemoryMiB, DiskSizeMB: r.Limits.DiskMiB,
		Metadata: &metadata, State: state(c, r.Phase), EnvdVersion: agentapi.EnvdVersion,
		Unhealthy: unhealthy(r),
	}
}

// unhealthy is what is wrong with its agent, nil where nothing is known to be.
func unhealthy(r cube.Record) *openapi.Unhealthy {
	if r.Unhealthy == nil {
		return nil
	}
	return &openapi.Unhealthy{Reason: r.Unhealthy.Reason, Since: r.Unhealthy.Since.UTC()}
}

// forever is what E2B's clients, which want an end, are told of a sandbox that has
// none.
const forever = 100 * 365 * 24 * time.Hour

// endAt is when its time is over. E2B: for one that is shown as paused when that
// began.
func endAt(c *call, r cube.Record) *time.Time {
	end := r.EndAt
	switch {
	case c.e2b() && state(c, r.Phase) == "paused":
		end = r.ChangedAt
	case end.IsZero() && c.e2b():
		end = r.StartedAt.Add(forever)
	case end.IsZero():
		return nil
	}
	end = end.UTC()
	return &end
}

// state is a phase as clients know it.
func state(c *call, p cube.Phase) openapi.ListedSandboxState {
	switch p {
	case cube.PhasePausing:
		if !c.e2b() {
			return "pausing"
		}
		return "paused"
	case cube.PhasePaused, cube.PhaseResuming, cube.PhaseRecovering:
		return "paused"
	default:
		return "running"
	}
}

func (a *API) detail(c *call, r cube.Record) openapi.SandboxDetail {
	l := a.listed(c, r)
	generation := int64(r.Generation)
	d := openapi.SandboxDetail{
		TemplateID: l.TemplateID, Alias: l.Alias, SandboxID: l.SandboxID, ClientID: l.ClientID, StartedAt: l.StartedAt, EndAt: l.EndAt,
		CpuCount: l.CpuCount, MemoryMB: l.MemoryMB, DiskSizeMB: l.DiskSizeMB, Metadata: l.Metadata, State: openapi.SandboxDetailState(l.State),
		EnvdVersion: l.EnvdVersion, Unhealthy: l.Unhealthy, EnvdAccessToken: some(r.Identity.AccessToken), Domain: some(a.conf.Domain),
		AllowInternetAccess: r.AllowInternet, Generation: &generation, ParentID: some(string(r.Parent)),
		Restored: restored(r), AutoRecover: &r.AutoRecover, FilesFallback: &r.FilesFallback,
		Lifecycle: &openapi.Lifecycle{AutoResume: r.AutoResume, OnTimeout: openapi.LifecycleOnTimeout(r.OnTimeout)},
	}
	if len(r.Network) > 0 {
		var n map[string]any
		if json.Unmarshal(r.Network, &n) == nil {
			hide(n)
			d.Network = &n
		}
	}
	return d
}

// hide takes what is never told back out of a policy.
func hide(network map[string]any) {
	if proxy, ok := network["egressProxy"].(map[string]any); ok {
		delete(proxy, "password")
	}
}
