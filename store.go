package cube

import "context"

// Store keeps records. What it has acknowledged survives the end of every process
// of ours, and a power cut too once Sync has returned; after a power cut before that
// the last moments may be missing, but what is there is consistent.
//
// All methods may be called at the same time. A context that ends leaves what is
// stored as it was or as it was to be, never between. Unknown ids are ErrNotFound.
type Store interface {
	// Apply makes all of a batch true or, when it fails, nothing of it.
	Apply(ctx context.Context, b Batch) error
	// Sandbox returns one record.
	Sandbox(ctx context.Context, id SandboxID) (Record, error)
	// Sandboxes returns all records, ended ones included, ordered by StartedAt,
	// then by id.
	Sandboxes(ctx context.Context) ([]Record, error)
	// Snapshots returns all snapshots, ordered by CreatedAt, then by id.
	Snapshots(ctx context.Context) ([]Snapshot, error)
	// Plans returns all plans, ordered by BeganAt, then by id.
	Plans(ctx context.Context) ([]Plan, error)
	// Answers returns all answers, ordered by At, then by key.
	Answers(ctx context.Context) ([]Answer, error)
	// Sync returns when all that was applied before it was called survives a power
	// cut. Calls at the same time share the work.
	Sync(ctx context.Context) error

	// Close waits for what is under way. The store is unusable afterwards.
	Close() error
}

// Batch is what becomes true at once: what is put is inserted, or replaces that with
// the same id; what is dropped is gone, also if it never was. Nothing may be both put
// and dropped.
type Batch struct {
	Sandboxes     []Record
	DropSandboxes []SandboxID
	Snapshots     []Snapshot
	DropSnapshots []ImageID
	Plans         []Plan
	DropPlans     []string // ids
	Answers       []Answer
	DropAnswers   []string // keys
}

// Empty reports whether there is nothing to do.
func (b Batch) Empty() bool {
	return len(b.Sandboxes)+len(b.DropSandboxes)+len(b.Snapshots)+len(b.DropSnapshots)+
		len(b.Plans)+len(b.DropPlans)+len(b.Answers)+len(b.DropAnswers) == 0
}
