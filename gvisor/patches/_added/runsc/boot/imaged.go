// Copyright 2026 The Cube Authors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package boot

import (
	"errors"
	"fmt"
	"os"
	rtdebug "runtime/debug"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/state"
	"gvisor.dev/gvisor/pkg/urpc"
)

// ContMgrAdoptImage has a running sandbox use pages where they lie in the pages file of its
// last checkpoint.
const ContMgrAdoptImage = "containerManager.AdoptImage"

// ContMgrImagedUsage says how much of a sandbox lies in images.
const ContMgrImagedUsage = "containerManager.ImagedUsage"

// ContMgrEarlyWrites says where private memory that lay in images was written to early in a
// sandbox's life (see package pgalloc), for RestoreOpts.ExpectWrites.
const ContMgrEarlyWrites = "containerManager.EarlyWrites"

// ContMgrGiveBack has a sandbox that is idle give back memory that it does not need. The result
// is how many bytes of its own memory it shares again.
const ContMgrGiveBack = "containerManager.GiveBack"

// AdoptImageOpts are options of containerManager.AdoptImage.
type AdoptImageOpts struct {
	// FilePayload contains the pages file, opened for reading only.
	urpc.FilePayload

	// ImageID is what the checkpoint was called (control.SaveOpts.ImageID).
	ImageID string
}

// openImages returns what RestoreOpts says of images, or nil.
func openImages(o *RestoreOpts) (*pgalloc.Images, error) {
	if len(o.ImageIDs) == 0 {
		if o.HaveImageTable {
			return nil, errors.New("there is a table of images, and the pages file has no name")
		}
		return nil, nil
	}
	if !o.HavePagesFile || o.UseCheckpointGofer {
		return nil, errors.New("images need a pages file")
	}
	next := 3
	var table *pgalloc.ImageTable
	if o.HaveImageTable {
		if len(o.Files) <= next {
			return nil, errors.New("there is no table of images")
		}
		var err error
		if table, err = pgalloc.ReadImageTable(o.Files[next]); err != nil {
			return nil, err
		}
		next++
	}
	if len(o.Files) < next+len(o.ImageIDs)-1 {
		return nil, fmt.Errorf("there are %d files for %d images", len(o.Files)-next, len(o.ImageIDs)-1)
	}
	var images []*pgalloc.Image
	for i, id := range o.ImageIDs {
		file := o.Files[2]
		if i > 0 {
			file = o.Files[next+i-1]
		}
		image, err := openImage(id, file)
		if err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	is, err := pgalloc.NewImages(images[0], table, images[1:])
	if err == nil {
		is.ExpectWrites(o.ExpectWrites)
	}
	return is, err
}

func openImage(id string, file *os.File) (*pgalloc.Image, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return pgalloc.NewImage(id, fd)
}

// saveImaged saves without the pages that lie in images, and writes the table of them.
func (l *Loader) saveImaged(o *control.SaveOpts, saveOpts *state.SaveOpts) error {
	mf := l.k.MemoryFile()
	images := mf.Images()
	if images == nil {
		var err error
		if images, err = pgalloc.NewImages(nil, nil, nil); err != nil {
			return err
		}
		mf.SetImages(images)
	}
	defer images.Exclude()()
	if err := images.BeginSave(o.ImageID, o.MaxImages); err != nil {
		return err
	}
	if err := l.saveWithOpts(saveOpts, &o.ExecOpts); err != nil {
		return err
	}
	if table := images.Table(); table != nil {
		return table.Write(o.Files[len(o.Files)-1])
	}
	return nil
}

// AdoptImage implements ContMgrAdoptImage.
func (cm *containerManager) AdoptImage(o *AdoptImageOpts, _ *struct{}) error {
	if len(o.Files) != 1 {
		return fmt.Errorf("got %d files, wanted the pages file", len(o.Files))
	}
	mf := cm.l.k.MemoryFile()
	images := mf.Images()
	if images == nil {
		return errors.New("no checkpoint with an ImageID was made")
	}
	defer images.Exclude()()
	file, err := o.ReleaseFD(0)
	if err != nil {
		return err
	}
	image, err := pgalloc.NewImage(o.ImageID, file.Release())
	if err != nil {
		return err
	}
	cm.l.k.Pause()
	defer cm.l.k.Unpause()
	if err := images.Adopt(image); err != nil {
		image.Release()
		return err
	}
	mf.MarkImaged(pgalloc.ImagedByAdopt)
	images.ReleaseUnused()
	return nil
}

// ImagedUsage implements ContMgrImagedUsage.
func (cm *containerManager) ImagedUsage(_ *struct{}, out *pgalloc.ImagedUsage) error {
	if images := cm.l.k.MemoryFile().Images(); images != nil {
		*out = images.Usage()
	}
	return nil
}

// EarlyWrites implements ContMgrEarlyWrites.
func (cm *containerManager) EarlyWrites(_ *struct{}, out *[]memmap.FileRange) error {
	*out = cm.l.k.MemoryFile().EarlyWrites()
	return nil
}

// GiveBack implements ContMgrGiveBack.
func (cm *containerManager) GiveBack(_ *struct{}, out *uint64) error {
	rtdebug.FreeOSMemory()
	mf := cm.l.k.MemoryFile()
	images := mf.Images()
	if images == nil {
		return nil
	}
	defer images.Exclude()()
	cm.l.k.Pause()
	defer cm.l.k.Unpause()
	*out = images.Reshare(mf)
	return nil
}
