-- +goose Up
-- Times are nanoseconds since 1970, UTC; 0 means none. What one asks for by value
-- has a column, the rest is JSON.
CREATE TABLE sandboxes (
    id          TEXT PRIMARY KEY,
    phase       TEXT    NOT NULL,
    generation  INTEGER NOT NULL,
    template    TEXT    NOT NULL,
    parent      TEXT    NOT NULL,
    image       TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    changed_at  INTEGER NOT NULL,
    end_at      INTEGER NOT NULL,
    record      TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sandboxes_by_start ON sandboxes (started_at, id);

CREATE TABLE snapshots (
    id          TEXT PRIMARY KEY,
    name        TEXT    NOT NULL,
    source      TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    record      TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX snapshots_by_creation ON snapshots (created_at, id);

-- +goose Down
DROP TABLE snapshots;
DROP TABLE sandboxes;
