-- Tasks, thoughts and sessions. Each change is also a record in the ledger, in the same transaction;
-- these tables answer questions quickly.

CREATE TABLE task (
    seq         INTEGER PRIMARY KEY,         -- the order of creation
    id          TEXT    NOT NULL UNIQUE,
    title       TEXT    NOT NULL,
    description TEXT,
    status      TEXT    NOT NULL,
    priority    INTEGER NOT NULL,            -- rank: 0 is critical
    labels      TEXT    NOT NULL,            -- a JSON array
    assignee    TEXT,
    lease_until INTEGER,                     -- ms since 1970; NULL: named, not claimed
    project_id  TEXT,
    attempt     INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    blocked_by  INTEGER NOT NULL,            -- needs that have not ended
    dependants  INTEGER NOT NULL,            -- tasks not ended that need this one
    thoughts    INTEGER NOT NULL,
    last_hash   BLOB    NOT NULL,            -- of its newest thought
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT;

-- What can be done now, best first: read from their fronts, whatever the number of tasks (store/next.rs).
CREATE INDEX task_next ON task (priority, dependants DESC, seq)
    WHERE blocked_by = 0 AND status NOT IN ('DONE', 'CANCELLED') AND lease_until IS NULL;
CREATE INDEX task_next_of_project ON task (project_id, priority, dependants DESC, seq)
    WHERE blocked_by = 0 AND status NOT IN ('DONE', 'CANCELLED') AND lease_until IS NULL;
CREATE INDEX task_next_assigned ON task (assignee, priority, dependants DESC, seq)
    WHERE blocked_by = 0 AND status NOT IN ('DONE', 'CANCELLED');
CREATE INDEX task_next_of_project_assigned ON task (project_id, assignee, priority, dependants DESC, seq)
    WHERE blocked_by = 0 AND status NOT IN ('DONE', 'CANCELLED');
CREATE INDEX task_lease ON task (lease_until)
    WHERE blocked_by = 0 AND status NOT IN ('DONE', 'CANCELLED') AND lease_until IS NOT NULL;
-- Pages of a list.
CREATE INDEX task_of_project ON task (project_id, seq);
CREATE INDEX task_with_status ON task (status, seq);
CREATE INDEX task_of_assignee ON task (assignee, seq);
CREATE INDEX task_of_priority ON task (priority, seq);

CREATE TABLE dependency (
    task  INTEGER NOT NULL,
    needs INTEGER NOT NULL,
    PRIMARY KEY (task, needs)
) STRICT, WITHOUT ROWID;
CREATE INDEX dependency_needs ON dependency (needs, task);

CREATE TABLE label (
    name TEXT    NOT NULL,
    task INTEGER NOT NULL,
    PRIMARY KEY (name, task)
) STRICT, WITHOUT ROWID;
CREATE INDEX label_of_task ON label (task);

-- Where the thoughts are; what they say is in their records and bodies.
CREATE TABLE thought (
    place   INTEGER PRIMARY KEY,             -- of its record
    id      TEXT    NOT NULL UNIQUE,
    task    INTEGER NOT NULL,
    session TEXT,
    agent   TEXT    NOT NULL,
    type    TEXT    NOT NULL
) STRICT;
CREATE INDEX thought_of_task ON thought (task, place);
CREATE INDEX thought_of_session ON thought (session, place) WHERE session IS NOT NULL;
CREATE INDEX thought_of_agent ON thought (agent, place);

CREATE TABLE session (
    id           TEXT    PRIMARY KEY,
    intent       TEXT    NOT NULL,
    task_id      TEXT,
    started_at   INTEGER NOT NULL,
    place        INTEGER NOT NULL,           -- of the record that opened it
    sealed       INTEGER,                    -- place of the record that sealed it
    root         BLOB,
    record_count INTEGER,
    finalized_at INTEGER
) STRICT, WITHOUT ROWID;
