package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	cube "cubesandbox"
)

// sandboxes is the table of records, its columns in the order of sandboxValues and
// scanSandbox.
var sandboxes = table{"sandboxes", []string{
	"id", "generation", "phase", "template", "alias", "parent", "memory_mib", "cpus", "disk_mib", "pids",
	"hostname", "env", "access_token", "user", "traffic_token", "metadata", "clock", "timeout", "end_at", "on_timeout",
	"auto_resume", "allow_internet", "network", "mcp", "image", "started_at", "changed_at", "death_reason", "death_detail", "died_at",
	"auto_recover", "files_fallback", "restored", "recoverable", "recovered_at",
}}

func sandboxValues(r cube.Record) []any {
	who, lim := r.Identity, r.Limits
	values := []any{
		string(r.ID), int64(r.Generation), string(r.Phase), string(r.Template), r.Alias, string(r.Parent),
		lim.MemoryMiB, lim.CPUs, lim.DiskMiB, lim.Pids,
		who.Hostname, jsonOf(who.Env), who.AccessToken, who.User, r.TrafficToken, jsonOf(r.Metadata),
		string(r.Clock), int64(r.Timeout), nanos(r.EndAt), string(r.OnTimeout), r.AutoResume, r.AllowInternet,
		text(r.Network), text(r.MCP), string(r.Image), nanos(r.StartedAt), nanos(r.ChangedAt),
	}
	if r.End == nil {
		values = append(values, nil, nil, nil)
	} else {
		values = append(values, string(r.End.Reason), r.End.Detail, nanos(r.End.At))
	}
	return append(values, r.AutoRecover, r.FilesFallback, string(r.Restored), r.Recoverable, nanos(r.RecoveredAt))
}

// scanSandbox reads a row. The pointers are of plain types, which database/sql takes
// without reflection.
func scanSandbox(scan func(...any) error) (r cube.Record, err error) {
	var generation, timeout, endAt, startedAt, changedAt, recoveredAt int64
	var env, metadata sql.RawBytes
	var network, mcp []byte
	var reason, detail sql.NullString
	var diedAt sql.NullInt64
	who, lim := &r.Identity, &r.Limits
	if err := scan(
		(*string)(&r.ID), &generation, (*string)(&r.Phase), (*string)(&r.Template), &r.Alias, (*string)(&r.Parent),
		&lim.MemoryMiB, &lim.CPUs, &lim.DiskMiB, &lim.Pids,
		&who.Hostname, &env, &who.AccessToken, &who.User, &r.TrafficToken, &metadata,
		(*string)(&r.Clock), &timeout, &endAt, (*string)(&r.OnTimeout), &r.AutoResume, &r.AllowInternet,
		&network, &mcp, (*string)(&r.Image), &startedAt, &changedAt, &reason, &detail, &diedAt,
		&r.AutoRecover, &r.FilesFallback, (*string)(&r.Restored), &r.Recoverable, &recoveredAt,
	); err != nil {
		return cube.Record{}, err
	}
	r.Generation, r.Timeout = cube.Generation(generation), time.Duration(timeout)
	r.EndAt, r.StartedAt, r.ChangedAt, r.RecoveredAt = moment(endAt), moment(startedAt), moment(changedAt), moment(recoveredAt)
	r.Network, r.MCP = json.RawMessage(network), json.RawMessage(mcp)
	if reason.Valid {
		r.End = &cube.Death{Reason: cube.DeathReason(reason.String), Detail: detail.String, At: moment(diedAt.Int64)}
	}
	if who.Env, err = mapOf(env); err == nil {
		r.Metadata, err = mapOf(metadata)
	}
	if err != nil {
		return r, fmt.Errorf("sandbox %s: %w", r.ID, err)
	}
	return r, nil
}

// Sandbox implements cube.Store.
func (s *Store) Sandbox(ctx context.Context, id cube.SandboxID) (cube.Record, error) {
	all, err := list(ctx, s, s.sandboxes.one, scanSandbox, string(id))
	if err == nil && len(all) == 0 {
		err = cube.ErrNotFound
	}
	if err != nil {
		return cube.Record{}, fmt.Errorf("record of %s: %w", id, err)
	}
	return all[0], nil
}

// Sandboxes implements cube.Store.
func (s *Store) Sandboxes(ctx context.Context) ([]cube.Record, error) {
	rs, err := list(ctx, s, s.sandboxes.all, scanSandbox)
	slices.SortFunc(rs, func(a, b cube.Record) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
	})
	return rs, err
}
