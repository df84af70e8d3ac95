package template

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// keptEntries is how many root file systems the cache keeps: those used last. Image
// stores have links or copies of their own.
const keptEntries = 4

// prune removes the entries that have not been used for longest.
func (c *cache) prune() error {
	records, err := filepath.Glob(filepath.Join(c.dir, "*", recordName))
	if err != nil {
		return err
	}
	type used struct {
		dir  string
		last time.Time
	}
	var entries []used
	for _, record := range records {
		st, err := os.Stat(record)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another builder was here
		}
		if err != nil {
			return err
		}
		if dir := filepath.Dir(record); filepath.Ext(dir) != partialName {
			entries = append(entries, used{dir, st.ModTime()})
		}
	}
	slices.SortFunc(entries, func(a, b used) int { return b.last.Compare(a.last) })
	for _, old := range entries[min(keptEntries, len(entries)):] {
		if err := os.RemoveAll(old.dir); err != nil {
			return err
		}
	}
	return nil
}
