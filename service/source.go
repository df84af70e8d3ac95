package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	cube "cubesandbox"
)

// source is what a sandbox is made from.
type source struct {
	image  cube.ImageID
	alias  string // the name that was asked for; empty for an id
	parent cube.SandboxID
	limits cube.Limits
	env    map[string]string
}

// bare takes a name's tag and namespace off: there is one of each.
func bare(name string) string {
	name = strings.TrimSuffix(name, ":default")
	if i := strings.LastIndex(name, "/"); i >= 0 {
		name = name[i+1:]
	}
	return name
}

// resolve finds a template or snapshot by id or name. What exists by both is the
// template: its name was there first.
func (s *Service) resolve(idOrName string) (source, error) {
	if idOrName == "" {
		return source{}, fmt.Errorf("no template is named: %w", cube.ErrInvalid)
	}
	name := bare(idOrName)
	id, err := cube.ParseImageID(name)
	if err != nil {
		if id, err = s.byName(name); err != nil {
			return source{}, err
		}
		return s.sourceOf(id, name)
	}
	return s.sourceOf(id, "")
}

func (s *Service) sourceOf(id cube.ImageID, alias string) (source, error) {
	if !id.IsTemplate() {
		snap, ok := s.snapshot(id)
		if !ok {
			return source{}, fmt.Errorf("template or snapshot %s: %w", id, cube.ErrNotFound)
		}
		return source{image: id, alias: alias, parent: snap.Source, limits: snap.Limits, env: snap.Env}, nil
	}
	im, err := s.images.Image(id)
	if errors.Is(err, cube.ErrNotFound) {
		return source{}, fmt.Errorf("template %s: %w", id, cube.ErrNotFound)
	}
	return source{image: id, alias: alias, limits: im.Limits}, err
}

// byName finds a template, or the newest snapshot with that name.
func (s *Service) byName(name string) (cube.ImageID, error) {
	names, err := s.nameMap()
	if err != nil {
		return "", err
	}
	if id, ok := names[name]; ok {
		return id, nil
	}
	if snap, ok := s.newestNamed(name); ok {
		return snap.ID, nil
	}
	return "", fmt.Errorf("template or snapshot %q: %w", name, cube.ErrNotFound)
}

// snapshot returns one that is ready.
func (s *Service) snapshot(id cube.ImageID) (cube.Snapshot, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	snap, ok := s.snapshots[id]
	return snap, ok && snap.State == cube.SnapshotReady
}

func (s *Service) newestNamed(name string) (newest cube.Snapshot, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, snap := range s.snapshots {
		if snap.Name == name && name != "" && snap.State == cube.SnapshotReady && (!ok || newer(snap, newest)) {
			newest, ok = snap, true
		}
	}
	return newest, ok
}

func newer(a, b cube.Snapshot) bool { return compareSnapshots(a, b) < 0 }

// nameMap is what each name means. One that cannot be read hides no other.
func (s *Service) nameMap() (map[string]cube.ImageID, error) {
	names, err := s.names.Names()
	if err != nil && names != nil {
		s.log.Error("not every name of a template can be read", "error", err)
		err = nil
	}
	return names, err
}

// Templates implements cube.Service.
func (s *Service) Templates(context.Context) ([]cube.Template, error) {
	names, err := s.nameMap()
	if err != nil {
		return nil, err
	}
	all, err := s.images.Images()
	if err != nil {
		s.log.Warn("not every image can be read", "error", err)
	}
	of := map[cube.ImageID][]string{}
	for name, id := range names {
		of[id] = append(of[id], name)
	}
	out := []cube.Template{}
	for _, im := range all {
		if im.Kind == cube.KindTemplate {
			slices.Sort(of[im.ID])
			out = append(out, cube.Template{Image: im, Names: of[im.ID]})
		}
	}
	return out, nil
}
