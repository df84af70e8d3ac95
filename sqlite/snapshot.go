package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	cube "cubesandbox"
)

// snapshots is the table of snapshots, its columns in the order of snapshotValues and
// scanSnapshot.
var snapshots = table{"snapshots", []string{
	"id", "name", "source", "template", "state", "created_at", "memory_mib", "cpus", "disk_mib", "pids", "env", "bytes", "durable",
}}

func snapshotValues(s cube.Snapshot) []any {
	return []any{
		string(s.ID), s.Name, string(s.Source), string(s.Template), string(s.State), nanos(s.CreatedAt),
		s.Limits.MemoryMiB, s.Limits.CPUs, s.Limits.DiskMiB, s.Limits.Pids, jsonOf(s.Env), s.Bytes, s.Durable,
	}
}

func scanSnapshot(scan func(...any) error) (s cube.Snapshot, err error) {
	var createdAt int64
	var env sql.RawBytes
	if err := scan(
		(*string)(&s.ID), &s.Name, (*string)(&s.Source), (*string)(&s.Template), (*string)(&s.State), &createdAt,
		&s.Limits.MemoryMiB, &s.Limits.CPUs, &s.Limits.DiskMiB, &s.Limits.Pids, &env, &s.Bytes, &s.Durable,
	); err != nil {
		return cube.Snapshot{}, err
	}
	s.CreatedAt = moment(createdAt)
	if s.Env, err = mapOf(env); err != nil {
		return s, fmt.Errorf("snapshot %s: %w", s.ID, err)
	}
	return s, nil
}

// Snapshots implements cube.Store.
func (s *Store) Snapshots(ctx context.Context) ([]cube.Snapshot, error) {
	all, err := list(ctx, s, s.snapshots.all, scanSnapshot)
	slices.SortFunc(all, func(a, b cube.Snapshot) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return all, err
}
