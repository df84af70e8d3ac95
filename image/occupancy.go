package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	cube "cubesandbox"
)

// Spaces says of each image, hidden ones too, what it takes on disk alone and together
// with others. Those whose manifest cannot be read are left out, and count for nobody.
func (s *Store) Spaces() map[cube.ImageID]cube.Space {
	ids, _ := s.ids()
	outlines, users := map[cube.ImageID]outline{}, map[cube.BaseID][]cube.ImageID{}
	for _, id := range ids {
		o, err := s.outline(id)
		if err != nil {
			continue
		}
		outlines[id] = o
		for _, base := range o.image.Bases {
			users[base] = append(users[base], id)
		}
	}
	out := map[cube.ImageID]cube.Space{}
	for id, o := range outlines {
		out[id] = s.space(o, users)
	}
	return out
}

func (s *Store) space(o outline, users map[cube.BaseID][]cube.ImageID) cube.Space {
	sp := cube.Space{Unique: o.image.Bytes, Users: users[o.image.Base]}
	if len(sp.Users) > 0 {
		sp.Unique, sp.Shared = sp.Unique-o.image.PagesBytes, o.image.PagesBytes
	}
	for i, base := range o.image.Bases {
		if parked, ok := s.parkedBytes(base); ok && len(users[base]) == 1 {
			sp.Unique += parked
		} else {
			sp.Shared += o.baseBytes[i]
		}
	}
	return sp
}

// parkedBytes is what the pages of a deleted image take on disk.
func (s *Store) parkedBytes(id cube.BaseID) (int64, bool) {
	fi, err := os.Lstat(filepath.Join(s.baseDir(id), pagesName))
	if err != nil {
		return 0, false
	}
	return fi.Sys().(*syscall.Stat_t).Blocks * 512, true
}

// FreePages frees the pages of deleted images that nothing needs any more: the last
// image that had memory in them was deleted, or the last sandbox has ended.
func (s *Store) FreePages() error {
	ids, err := s.unnamed()
	errs := []error{err}
	for _, id := range ids {
		_, err := s.freeBase(id)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// unnamed are the pages of deleted images that no image has memory in.
func (s *Store) unnamed() ([]cube.BaseID, error) {
	ids, err := s.bases()
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	uses, err := s.uses()
	return slices.DeleteFunc(ids, func(id cube.BaseID) bool { return err != nil || len(uses[id]) > 0 }), err
}
