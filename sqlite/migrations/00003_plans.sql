-- +goose Up
-- Plans of verbs under way, and answers to requests that had an idempotency key.
ALTER TABLE sandboxes ADD COLUMN auto_recover   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN files_fallback INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN restored       TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN recoverable    INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN recovered_at   INTEGER NOT NULL DEFAULT 0;
-- Those that are there say so when their images have been looked at.
ALTER TABLE snapshots ADD COLUMN durable        INTEGER NOT NULL DEFAULT 0;

CREATE TABLE plans (
    id          TEXT PRIMARY KEY NOT NULL,
    verb        TEXT NOT NULL,
    sandbox     TEXT NOT NULL,
    image       TEXT NOT NULL,
    made        TEXT CHECK (json_valid(made)), -- ids of sandboxes
    key         TEXT NOT NULL,
    request     TEXT NOT NULL,
    began_at    INTEGER NOT NULL
) STRICT;

CREATE TABLE answers (
    key         TEXT PRIMARY KEY NOT NULL,
    request     TEXT NOT NULL,
    sandboxes   TEXT CHECK (json_valid(sandboxes)), -- ids
    image       TEXT NOT NULL,
    at          INTEGER NOT NULL
) STRICT;

-- +goose Down
-- There is no way back: the program of that time refuses a newer version.
