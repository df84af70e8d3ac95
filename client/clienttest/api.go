package clienttest

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
)

func (s *Server) api(mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, client.Health{Status: "ok", Sandboxes: len(s.States())})
	})
	for route, f := range map[string]func(http.ResponseWriter, *http.Request, Call){
		"POST /sandboxes": s.create, "GET /v2/sandboxes": s.list, "GET /snapshots": s.listSnapshots, "GET /templates": s.listTemplates,
		"DELETE /templates/{id}": s.deleteImage, "GET /sandboxes/ended": s.listEnded, "POST /sandboxes/{id}/recover": s.recoverEnded,
		"POST /images/{id}/verify": s.verify, "POST /gc": s.collect, "GET /plans": s.listPlans,
	} {
		mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if c, ok := s.note(w, r); ok {
				f(w, r, c)
			}
		})
	}
	for route, f := range map[string]func(http.ResponseWriter, Call, *client.Sandbox){
		"GET /sandboxes/{id}": s.get, "DELETE /sandboxes/{id}": s.kill, "POST /sandboxes/{id}/pause": s.pause,
		"POST /sandboxes/{id}/resume": s.resume, "POST /sandboxes/{id}/connect": s.connect, "POST /sandboxes/{id}/timeout": s.timeout,
		"POST /sandboxes/{id}/snapshots": s.snapshot, "POST /sandboxes/{id}/rollback": s.rollback, "POST /sandboxes/{id}/clone": s.clone,
	} {
		mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			c, ok := s.note(w, r)
			if !ok {
				return
			}
			id := cube.SandboxID(r.PathValue("id"))
			if b := s.find(id); b == nil && r.Method == http.MethodDelete && s.giveUp(id) {
				w.WriteHeader(http.StatusNoContent)
			} else if b == nil {
				fail(w, http.StatusNotFound, "sandbox "+r.PathValue("id")+" not found")
			} else {
				f(w, c, b)
			}
		})
	}
}

func (s *Server) find(id cube.SandboxID) *client.Sandbox {
	for i := range s.sandboxes {
		if s.sandboxes[i].ID == id {
			return &s.sandboxes[i]
		}
	}
	return nil
}

func (s *Server) add(id cube.SandboxID, n client.NewSandbox) client.Sandbox {
	began := time.Date(2026, 11, 30, 13, len(s.sandboxes), 0, 0, time.UTC)
	b := client.Sandbox{
		ID: id, Template: "tpl-0123456789abcdef01234567", Alias: n.Template, State: "running", StartedAt: &began,
		CPUs: 2, MemoryMiB: 512, DiskMiB: 10240, Metadata: n.Metadata, AccessToken: "token-of-" + string(id), Domain: "localhost:3002",
		Lifecycle: &client.Lifecycle{OnTimeout: n.OnTimeout, AutoResume: n.AutoResume},
	}
	if n.Timeout > 0 {
		end := began.Add(n.Timeout)
		b.EndAt = &end
	}
	s.sandboxes = append(s.sandboxes, b)
	s.files[id] = map[string]string{}
	return b
}

func (s *Server) addSnapshot(id cube.ImageID, source cube.SandboxID, names ...string) client.Snapshot {
	made := time.Date(2026, 11, 30, 14, len(s.snapshots), 0, 0, time.UTC)
	snap := client.Snapshot{ID: id, Names: append([]string{}, names...), Source: source, CreatedAt: &made, Durable: len(s.snapshots) > 0,
		Space: client.Space{Unique: 5 << 20, Shared: 1 << 30}}
	if snap.Level = "published"; snap.Durable {
		snap.Level = "durable"
	}
	s.snapshots = append(s.snapshots, snap)
	return snap
}

func (s *Server) create(w http.ResponseWriter, _ *http.Request, c Call) {
	template, _ := c.Body["templateID"].(string)
	if !s.hasTemplate(template) && s.image(template) == "" {
		fail(w, http.StatusNotFound, "template "+template+" not found")
		return
	}
	n := client.NewSandbox{Template: template, Metadata: map[string]string{}}
	if seconds, ok := c.Body["timeout"].(float64); ok {
		n.Timeout = time.Duration(seconds) * time.Second
	}
	if m, ok := c.Body["metadata"].(map[string]any); ok {
		for key, value := range m {
			n.Metadata[key], _ = value.(string)
		}
	}
	answer(w, http.StatusCreated, s.add(cube.NewSandboxID(), n))
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, _ Call) {
	want, _ := url.ParseQuery(r.URL.Query().Get("metadata"))
	all := slices.DeleteFunc(slices.Clone(s.sandboxes), func(b client.Sandbox) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(key string) bool { return b.Metadata[key] != want.Get(key) })
	})
	slices.Reverse(all)
	page(w, r, all)
}

func (s *Server) get(w http.ResponseWriter, _ Call, b *client.Sandbox) { answer(w, http.StatusOK, b) }

func (s *Server) kill(w http.ResponseWriter, _ Call, b *client.Sandbox) {
	id := b.ID
	s.sandboxes = slices.DeleteFunc(s.sandboxes, func(b client.Sandbox) bool { return b.ID == id })
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) pause(w http.ResponseWriter, c Call, b *client.Sandbox) {
	if b.State == "paused" {
		fail(w, http.StatusConflict, "sandbox "+string(b.ID)+" is already paused")
		return
	}
	b.State = "paused"
	if b.Restored = cube.RestoredMemory; c.Body["memory"] == false {
		b.Restored = cube.RestoredFiles
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) resume(w http.ResponseWriter, c Call, b *client.Sandbox) {
	if b.State == "running" {
		fail(w, http.StatusConflict, "sandbox "+string(b.ID)+" is already running")
		return
	}
	b.State = "running"
	if c.Body["memory"] == false {
		b.Restored = cube.RestoredFiles
	}
	answer(w, http.StatusCreated, b)
}

func (s *Server) connect(w http.ResponseWriter, _ Call, b *client.Sandbox) {
	b.State = "running"
	answer(w, http.StatusOK, b)
}

func (s *Server) timeout(w http.ResponseWriter, c Call, b *client.Sandbox) {
	end := b.StartedAt.Add(time.Duration(c.Body["timeout"].(float64)) * time.Second)
	b.EndAt = &end
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) snapshot(w http.ResponseWriter, c Call, b *client.Sandbox) {
	var names []string
	if given, _ := c.Body["name"].(string); given != "" {
		names = []string{given}
	}
	answer(w, http.StatusCreated, s.addSnapshot(cube.NewSnapshotID(), b.ID, names...))
}

func (s *Server) rollback(w http.ResponseWriter, c Call, b *client.Sandbox) {
	given, _ := c.Body["snapshotID"].(string)
	id := s.image(given)
	if id == "" {
		fail(w, http.StatusNotFound, "snapshot "+given+" not found")
		return
	}
	answer(w, http.StatusOK, map[string]any{"sandboxID": b.ID, "snapshotID": id, "operationID": "op", "status": "READY"})
}

func (s *Server) clone(w http.ResponseWriter, c Call, b *client.Sandbox) {
	out, parent := []client.Sandbox{}, b.ID
	for range int(c.Body["count"].(float64)) {
		s.add(cube.NewSandboxID(), client.NewSandbox{Template: "base"})
		last := &s.sandboxes[len(s.sandboxes)-1]
		last.Parent = parent
		out = append(out, *last)
	}
	answer(w, http.StatusCreated, out)
}

// image is the snapshot that an id or name means; empty for none.
func (s *Server) image(idOrName string) cube.ImageID {
	for _, snap := range s.snapshots {
		if string(snap.ID) == name(idOrName) || slices.Contains(snap.Names, name(idOrName)) {
			return snap.ID
		}
	}
	return ""
}

func (s *Server) hasTemplate(idOrName string) bool {
	return slices.ContainsFunc(s.templates, func(t client.Template) bool {
		return string(t.ID) == idOrName || slices.Contains(t.Names, idOrName)
	})
}

func (s *Server) listSnapshots(w http.ResponseWriter, r *http.Request, _ Call) {
	all := slices.Clone(s.snapshots)
	if source := r.URL.Query().Get("sandboxID"); source != "" {
		all = slices.DeleteFunc(all, func(snap client.Snapshot) bool { return string(snap.Source) != source })
	}
	slices.Reverse(all)
	page(w, r, all)
}

func (s *Server) listTemplates(w http.ResponseWriter, _ *http.Request, _ Call) {
	answer(w, http.StatusOK, s.templates)
}

func (s *Server) deleteImage(w http.ResponseWriter, r *http.Request, _ Call) {
	given := r.PathValue("id")
	if id := s.image(given); id != "" {
		s.snapshots = slices.DeleteFunc(s.snapshots, func(snap client.Snapshot) bool { return snap.ID == id })
	} else if s.hasTemplate(given) {
		s.templates = nil
	} else {
		fail(w, http.StatusNotFound, "template or snapshot "+given+" not found")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
