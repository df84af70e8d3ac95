package service

import (
	"maps"

	cube "cubesandbox"
)

// refreshPools tells the engine which templates are worth keeping ready: those
// that have a name.
func (s *Service) refreshPools() {
	s.filling.Lock()
	defer s.filling.Unlock()
	names, err := s.nameMap()
	if err != nil {
		s.log.Warn("the names of templates cannot be read", "error", err)
		return
	}
	want := map[cube.ImageID]int{}
	for name, id := range names {
		if _, err := s.images.Image(id); err != nil {
			s.log.Debug("a template's image is not there", "template", name, "image", id, "error", err)
			continue
		}
		want[id] = s.conf.Restored
	}
	if s.pooled != nil && maps.Equal(want, s.pooled) {
		return
	}
	if err := s.engine.SetPools(s.ctx, cube.Pools{Booted: s.conf.Booted, Restored: want}); err != nil {
		s.log.Warn("pools could not be set", "error", err)
		return
	}
	s.pooled = want
}
