package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

const newNotesName = notesName + ".new"

// notes are what was found when files of an image were read again, by name, in its
// directory. They save reading, and remember damage that leaves no trace in a file's
// identity.
type notes struct {
	// Boot is the life of the machine in which Right was found.
	Boot  string              `json:"boot"`
	Right map[string]identity `json:"right"`
	// Wrong outlasts it, and so is synced.
	Wrong map[string]identity `json:"wrong,omitempty"`
	// SyncFailed is the life of the machine in which a sync has failed: what is in
	// memory may not be what is on disk.
	SyncFailed string `json:"sync_failed,omitempty"`
}

// notes reads them. Half written ones, which a power cut leaves, are none.
func (s *Store) notes(d *directory) (notes, error) {
	var n notes
	b, err := d.ReadFile(notesName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return notes{}, err
	}
	if err != nil || json.Unmarshal(b, &n) != nil {
		n = notes{}
	}
	if n.Boot != s.boot || n.Right == nil {
		n.Boot, n.Right = s.boot, map[string]identity{}
	}
	if n.Wrong == nil {
		n.Wrong = map[string]identity{}
	}
	return n, nil
}

// note keeps a verdict. That a file is wrong is known to all later processes: where
// it cannot be written down the file gets another time, and so is read before each use.
func (s *Store) note(d *directory, name string, found identity, right bool) {
	s.files.keep(found.inode(), verdict{found, right})
	err := s.amend(d, func(n *notes) {
		delete(n.Right, name)
		delete(n.Wrong, name)
		if right {
			n.Right[name] = found
		} else {
			n.Wrong[name] = found
		}
	})
	if err != nil && !right {
		_ = d.Chtimes(name, time.Time{}, time.Now())
	}
}

// amend changes the notes, in all processes one after the other. Those that were there
// stay where there is no room for others.
func (s *Store) amend(d *directory, change func(n *notes)) error {
	if err := flock(d.self, syscall.LOCK_EX); err != nil {
		return err
	}
	defer flock(d.self, syscall.LOCK_UN)
	n, err := s.notes(d)
	if err != nil {
		return err
	}
	change(&n)
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := d.replaceNotes(b, len(n.Wrong) > 0); err != nil {
		return errors.Join(fmt.Errorf("notes of image %s: %w", d.id, err), d.Remove(newNotesName))
	}
	return nil
}

// replaceNotes writes beside and renames.
func (d *directory) replaceNotes(b []byte, sync bool) error {
	f, err := d.OpenFile(newNotesName, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && sync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := d.Rename(newNotesName, notesName); err != nil || !sync {
		return err
	}
	return d.self.Sync()
}
