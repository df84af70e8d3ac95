package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	cube "cubesandbox"
)

// PutSnapshot implements cube.Store.
func (s *Store) PutSnapshot(ctx context.Context, snap cube.Snapshot) error {
	snap.CreatedAt = snap.CreatedAt.UTC()
	b, err := json.Marshal(snap)
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", snap.ID, err)
	}
	_, err = s.putSnapshot.ExecContext(ctx, snap.ID, snap.Name, snap.Source, snap.State, nanos(snap.CreatedAt), string(b))
	return cause(ctx, err)
}

// Snapshots implements cube.Store.
func (s *Store) Snapshots(ctx context.Context) ([]cube.Snapshot, error) {
	return list(ctx, s.db, `SELECT record FROM snapshots ORDER BY created_at, id`, func(s cube.Snapshot) cube.Snapshot { return s })
}

// DeleteSnapshot implements cube.Store.
func (s *Store) DeleteSnapshot(ctx context.Context, id cube.ImageID) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM snapshots WHERE id = ?`, id)
	return cause(ctx, err)
}
