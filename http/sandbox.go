package http

import (
	"context"
	"net/http"
	"time"

	cube "cubesandbox"
	"cubesandbox/http/openapi"
)

func (a *API) health(c *call) (answer, error) {
	if c.e2b() {
		return answer{status: http.StatusNoContent}, nil
	}
	h := openapi.Health{Status: "ok", Version: &a.conf.Version}
	if a.conf.Phases != nil {
		for _, n := range a.conf.Phases() {
			h.Sandboxes += n
		}
	}
	return answer{status: http.StatusOK, body: h}, nil
}

// usageTime is how long is waited for what a sandbox takes.
const usageTime = 2 * time.Second

func (a *API) get(c *call) (answer, error) {
	id, err := c.box()
	if err != nil {
		return answer{}, err
	}
	r, err := a.svc.Get(c.ctx(), id)
	if err != nil {
		return answer{}, err
	}
	usage, err := truth(c, "usage")
	if err != nil {
		return answer{}, err
	}
	d := a.detail(c, r)
	switch {
	case r.Phase == cube.PhasePaused:
		space := a.svc.Spaces(c.ctx())[r.Image]
		d.UniqueBytes, d.SharedBytes = &space.Unique, &space.Shared
	case usage && r.Phase == cube.PhaseRunning:
		ctx, cancel := context.WithTimeout(c.ctx(), usageTime)
		defer cancel()
		// Its kernel may be busy, or gone: all else is known all the same.
		if u, err := a.svc.Usage(ctx, id); err == nil {
			unique, shared := u.GuestMemory-u.SharedMemory+u.GuestFiles, u.SharedMemory+u.SharedFiles
			d.UniqueBytes, d.SharedBytes = &unique, &shared
		}
	}
	return answer{status: http.StatusOK, body: d}, nil
}

// truth reads a parameter that is true or false, and false where it is not there.
func truth(c *call, name string) (bool, error) {
	switch s := c.r.URL.Query().Get(name); s {
	case "true", "false", "":
		return s == "true", nil
	default:
		return false, invalid("%s %.20q: want true or false", name, s)
	}
}

func (a *API) kill(c *call) (answer, error) {
	id, err := c.box()
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, a.svc.Kill(c.ctx(), id)
}

func (a *API) pause(c *call) (answer, error) {
	id, err := c.box()
	if err != nil {
		return answer{}, err
	}
	var q openapi.PauseRequest
	if err := read(c.r, &q); err != nil {
		return answer{}, err
	}
	p := cube.Pausing{FilesOnly: q.Memory != nil && !*q.Memory}
	return answer{status: http.StatusNoContent}, a.svc.Pause(c.ctx(), id, p)
}

func (a *API) resume(c *call) (answer, error) {
	id, err := c.box()
	if err != nil {
		return answer{}, err
	}
	o, err := a.resumption(c, timeoutE2Bv1)
	if err != nil {
		return answer{}, err
	}
	r, err := a.svc.Resume(c.ctx(), id, o)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: a.sandbox(r)}, nil
}

func (a *API) connect(c *call) (answer, error) {
	id, err := c.box()
	if err != nil {
		return answer{}, err
	}
	o, err := a.resumption(c, timeoutE2Bv2)
	if err != nil {
		return answer{}, err
	}
	r, resumed, err := a.svc.Connect(c.ctx(), id, o)
	if err != nil {
		return answer{}, err
	}
	status := http.StatusOK
	if resumed && c.e2b() {
		status = http.StatusCreated
	}
	return answer{status: status, body: a.sandbox(r)}, nil
}

// resumption reads the body of connect and resume. In E2B's dialect a time is
// always given, said or not.
func (a *API) resumption(c *call, otherwise time.Duration) (o cube.Resumption, err error) {
	fields, err := readObject(c.r)
	if err != nil {
		return o, err
	}
	rename(fields, "auto_pause", "autoPause", "files_fallback", "filesFallback")
	var q openapi.ResumeRequest
	if err := into(fields, &q); err != nil {
		return o, err
	}
	o.Files, o.FilesFallback = q.Memory != nil && !*q.Memory, yes(q.FilesFallback)
	if q.AutoPause != nil {
		on := cube.OnTimeoutKill
		if *q.AutoPause {
			on = cube.OnTimeoutPause
		}
		o.OnTimeout = &on
	}
	switch {
	case q.Timeout == nil && !c.e2b():
		return o, nil
	case q.Timeout == nil:
		o.Timeout = a.atMost(otherwise)
		return o, nil
	case *q.Timeout == 0 && !c.e2b():
		return o, invalid("validation error: timeout 0: want seconds above 0, or -1 for never")
	}
	o.Timeout, err = a.seconds(c, *q.Timeout)
	return o, err
}

func (a *API) timeout(c *call) (answer, error) {
	id, err := c.box()
	if err != nil {
		return answer{}, err
	}
	var q struct {
		Timeout *int `json:"timeout"`
	}
	if err := read(c.r, &q); err != nil {
		return answer{}, err
	}
	if q.Timeout == nil {
		return answer{}, invalid("validation error: timeout is required, in seconds")
	}
	d, err := a.seconds(c, *q.Timeout)
	if err != nil {
		return answer{}, err
	}
	if *q.Timeout == 0 {
		d = time.Millisecond // "at once"
	}
	return answer{status: http.StatusNoContent}, a.svc.SetTimeout(c.ctx(), id, d)
}

// refreshDefault is how far a refresh moves the end, where nothing is said, in seconds.
const refreshDefault = 15

func (a *API) refresh(c *call) (answer, error) {
	id, err := c.box()
	if err != nil {
		return answer{}, err
	}
	var q openapi.RefreshRequest
	if err := read(c.r, &q); err != nil {
		return answer{}, err
	}
	n := refreshDefault
	if q.Duration != nil {
		n = *q.Duration
	}
	if n < 0 || n > 3600 {
		return answer{}, invalid("validation error: duration %d: want 0 to 3600 seconds", n)
	}
	return answer{status: http.StatusNoContent}, a.svc.Refresh(c.ctx(), id, time.Duration(n)*time.Second)
}

func (a *API) clone(c *call) (answer, error) {
	id, err := c.box()
	if err != nil {
		return answer{}, err
	}
	var q openapi.CloneRequest
	if err := read(c.r, &q); err != nil {
		return answer{}, err
	}
	k := cube.Cloning{N: 1}
	if k.Key, err = c.key(); err != nil {
		return answer{}, err
	}
	if q.Count != nil {
		k.N = *q.Count
	}
	if q.Concurrency != nil {
		if k.Concurrency = *q.Concurrency; k.Concurrency < 0 {
			return answer{}, invalid("validation error: concurrency %d: want 0 or more", k.Concurrency)
		}
	}
	if q.Timeout != nil {
		if k.Timeout, err = a.seconds(c, *q.Timeout); err != nil {
			return answer{}, err
		}
	}
	rs, err := a.svc.Clone(c.ctx(), id, k)
	if err != nil {
		return answer{}, err
	}
	out := make([]openapi.Sandbox, len(rs))
	for i, r := range rs {
		out[i] = a.sandbox(r)
		c.made = append(c.made, string(r.ID))
	}
	return answer{status: http.StatusCreated, body: out}, nil
}
