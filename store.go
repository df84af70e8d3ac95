package cube

import "context"

// Store keeps records. What it has acknowledged survives the end of every process
// of ours; after a power cut the last moments may be missing, but what is there is
// consistent.
//
// All methods may be called at the same time. A context that ends leaves a record
// as it was or as it was to be, never between. Unknown ids are ErrNotFound, except
// for the Delete methods, which are idempotent.
type Store interface {
	// PutSandboxes inserts records or replaces those with the same ids: all of them
	// or, when it fails, none.
	PutSandboxes(ctx context.Context, rs ...Record) error
	// Sandbox returns one record.
	Sandbox(ctx context.Context, id SandboxID) (Record, error)
	// Sandboxes returns all records, ended ones included, ordered by StartedAt,
	// then by id.
	Sandboxes(ctx context.Context) ([]Record, error)
	// DeleteSandbox forgets a sandbox.
	DeleteSandbox(ctx context.Context, id SandboxID) error

	// PutSnapshot inserts a snapshot or replaces that with the same id.
	PutSnapshot(ctx context.Context, s Snapshot) error
	// Snapshots returns all snapshots, ordered by CreatedAt, then by id.
	Snapshots(ctx context.Context) ([]Snapshot, error)
	// DeleteSnapshot forgets a snapshot.
	DeleteSnapshot(ctx context.Context, id ImageID) error

	// Close waits for what is under way. The store is unusable afterwards.
	Close() error
}
