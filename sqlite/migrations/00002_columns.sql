-- +goose Up
-- A column for each field, so that there is one truth and SQLite checks it; JSON only
-- for maps and for what clients gave as JSON. NULL is Go's nil; times are nanoseconds
-- since 1970, UTC, 0 for none. No index but by id: all lists are of everything.
CREATE TABLE sandboxes_2 (
    id             TEXT PRIMARY KEY NOT NULL,
    generation     INTEGER NOT NULL,
    phase          TEXT NOT NULL,
    template       TEXT NOT NULL,
    alias          TEXT NOT NULL,
    parent         TEXT NOT NULL,
    memory_mib     INTEGER NOT NULL,
    cpus           INTEGER NOT NULL,
    disk_mib       INTEGER NOT NULL,
    pids           INTEGER NOT NULL,
    hostname       TEXT NOT NULL,
    env            TEXT CHECK (json_valid(env)),
    access_token   TEXT NOT NULL,
    user           TEXT NOT NULL,
    traffic_token  TEXT NOT NULL,
    metadata       TEXT CHECK (json_valid(metadata)),
    clock          TEXT NOT NULL,
    timeout        INTEGER NOT NULL, -- nanoseconds; -1 for none
    end_at         INTEGER NOT NULL,
    on_timeout     TEXT NOT NULL,
    auto_resume    INTEGER NOT NULL,
    allow_internet INTEGER,
    network        TEXT CHECK (json_valid(network)),
    mcp            TEXT CHECK (json_valid(mcp)),
    image          TEXT NOT NULL,
    started_at     INTEGER NOT NULL,
    changed_at     INTEGER NOT NULL,
    death_reason   TEXT, -- NULL while it has not ended
    death_detail   TEXT,
    died_at        INTEGER
) STRICT;

-- When it died is kept to the second here.
INSERT INTO sandboxes_2
SELECT id, generation, phase, template, record->>'$.Alias', parent,
    record->>'$.Limits.memoryMiB', record->>'$.Limits.cpus', record->>'$.Limits.diskMiB', record->>'$.Limits.pids',
    coalesce(record->>'$.Identity.hostname', ''), record->>'$.Identity.env',
    coalesce(record->>'$.Identity.accessToken', ''), coalesce(record->>'$.Identity.user', ''),
    record->>'$.TrafficToken', record->>'$.Metadata', record->>'$.Clock', record->>'$.Timeout', end_at,
    record->>'$.OnTimeout', record->>'$.AutoResume', record->>'$.AllowInternet', record->>'$.Network', record->>'$.MCP',
    image, started_at, changed_at,
    record->>'$.End.reason',
    iif(record->>'$.End.reason' IS NULL, NULL, coalesce(record->>'$.End.detail', '')),
    CAST(strftime('%s', record->>'$.End.at') AS INTEGER) * 1000000000
FROM sandboxes;
DROP TABLE sandboxes;
ALTER TABLE sandboxes_2 RENAME TO sandboxes;

CREATE TABLE snapshots_2 (
    id          TEXT PRIMARY KEY NOT NULL,
    name        TEXT NOT NULL,
    source      TEXT NOT NULL,
    template    TEXT NOT NULL,
    state       TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    memory_mib  INTEGER NOT NULL,
    cpus        INTEGER NOT NULL,
    disk_mib    INTEGER NOT NULL,
    pids        INTEGER NOT NULL,
    env         TEXT CHECK (json_valid(env)),
    bytes       INTEGER NOT NULL
) STRICT;

INSERT INTO snapshots_2
SELECT id, name, source, record->>'$.Template', state, created_at,
    record->>'$.Limits.memoryMiB', record->>'$.Limits.cpus', record->>'$.Limits.diskMiB', record->>'$.Limits.pids',
    record->>'$.Env', record->>'$.Bytes'
FROM snapshots;
DROP TABLE snapshots;
ALTER TABLE snapshots_2 RENAME TO snapshots;

-- +goose Down
-- There is no way back: the program of that time refuses a newer version.
