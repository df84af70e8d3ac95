package fake_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	cube "cubesandbox"
	"cubesandbox/fake"
	"cubesandbox/storetest"
)

// opened is Records as one who opens them has them: they themselves outlive him.
type opened struct {
	*fake.Records
	closed atomic.Bool
}

var errClosed = errors.New("closed")

func (s *opened) Close() error {
	s.closed.Store(true)
	return nil
}

func unlessClosed[T any](s *opened, do func() (T, error)) (none T, err error) {
	if s.closed.Load() {
		return none, errClosed
	}
	return do()
}

func (s *opened) Apply(ctx context.Context, b cube.Batch) error {
	_, err := unlessClosed(s, func() (any, error) { return nil, s.Records.Apply(ctx, b) })
	return err
}

func (s *opened) Sync(ctx context.Context) error {
	_, err := unlessClosed(s, func() (any, error) { return nil, s.Records.Sync(ctx) })
	return err
}

func (s *opened) Sandbox(ctx context.Context, id cube.SandboxID) (cube.Record, error) {
	return unlessClosed(s, func() (cube.Record, error) { return s.Records.Sandbox(ctx, id) })
}

func (s *opened) Sandboxes(ctx context.Context) ([]cube.Record, error) {
	return unlessClosed(s, func() ([]cube.Record, error) { return s.Records.Sandboxes(ctx) })
}

func (s *opened) Snapshots(ctx context.Context) ([]cube.Snapshot, error) {
	return unlessClosed(s, func() ([]cube.Snapshot, error) { return s.Records.Snapshots(ctx) })
}

func (s *opened) Plans(ctx context.Context) ([]cube.Plan, error) {
	return unlessClosed(s, func() ([]cube.Plan, error) { return s.Records.Plans(ctx) })
}

func (s *opened) Answers(ctx context.Context) ([]cube.Answer, error) {
	return unlessClosed(s, func() ([]cube.Answer, error) { return s.Records.Answers(ctx) })
}

func TestRecordsKeepTheContractOfAStore(t *testing.T) {
	stores := map[string]*fake.Records{}
	storetest.Run(t, func(path string) (cube.Store, error) {
		if stores[path] == nil {
			stores[path] = fake.NewRecords()
		}
		return &opened{Records: stores[path]}, nil
	})
}
