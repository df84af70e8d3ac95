package clienttest

import (
	"net/http"
	"slices"

	cube "cubesandbox"
	"cubesandbox/client"
)

func (s *Server) listEnded(w http.ResponseWriter, r *http.Request, _ Call) {
	only := r.URL.Query().Get("recoverable") == "true"
	answer(w, http.StatusOK, slices.DeleteFunc(append([]client.Ended{}, s.ended...), func(e client.Ended) bool { return only && !e.Recoverable }))
}

func (s *Server) recoverEnded(w http.ResponseWriter, r *http.Request, _ Call) {
	id := cube.SandboxID(r.PathValue("id"))
	i := slices.IndexFunc(s.ended, func(e client.Ended) bool { return e.ID == id })
	switch {
	case i < 0 && s.find(id) != nil:
		fail(w, http.StatusConflict, "sandbox "+string(id)+" is running")
	case i < 0 || !s.ended[i].Recoverable:
		fail(w, http.StatusNotFound, "sandbox "+string(id)+" not found: there is no way back")
	default:
		s.ended = slices.Delete(s.ended, i, i+1)
		s.add(id, client.NewSandbox{Template: "base"})
		b := s.find(id)
		b.Restored = cube.RestoredMemory
		answer(w, http.StatusCreated, b)
	}
}

// giveUp makes one that could be recovered one that cannot.
func (s *Server) giveUp(id cube.SandboxID) bool {
	i := slices.IndexFunc(s.ended, func(e client.Ended) bool { return e.ID == id && e.Recoverable })
	if i >= 0 {
		s.ended[i].Recoverable, s.ended[i].Recovery = false, ""
	}
	return i >= 0
}

// verify finds every image sound but one that is named "flipped".
func (s *Server) verify(w http.ResponseWriter, r *http.Request, _ Call) {
	given := r.PathValue("id")
	id := s.image(given)
	i := slices.IndexFunc(s.snapshots, func(snap client.Snapshot) bool { return snap.ID == id })
	switch {
	case i < 0:
		fail(w, http.StatusNotFound, "template or snapshot "+given+" not found")
	case slices.Contains(s.snapshots[i].Names, "flipped"):
		answer(w, http.StatusInternalServerError, map[string]any{
			"code": 500, "message": "image " + string(id) + " is corrupt: pages: not what it was", "error_code": "image_corrupt",
		})
	default:
		answer(w, http.StatusOK, client.Verified{ID: id, Bytes: 5 << 20, Durable: s.snapshots[i].Durable})
	}
}

func (s *Server) collect(w http.ResponseWriter, _ *http.Request, c Call) {
	found := append([]cube.Garbage{}, s.garbage...)
	if c.Body["dryRun"] != true {
		s.garbage = nil
	}
	answer(w, http.StatusOK, found)
}

func (s *Server) listPlans(w http.ResponseWriter, _ *http.Request, _ Call) {
	answer(w, http.StatusOK, append([]client.Plan{}, s.plans...))
}
