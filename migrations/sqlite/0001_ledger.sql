-- The ledger. `record` is the truth; every other table of this file is derived from it, can be
-- rebuilt from it, and is compared with it by `colibri audit verify`.
--
-- A place is `log << 40 | index`, so that all logs share one append-only B-tree; a call's number is
-- `log << 40 | sequence_no` likewise.

CREATE TABLE log (
    id        INTEGER PRIMARY KEY,           -- the newest is the one being written
    origin    TEXT    NOT NULL UNIQUE,
    size      INTEGER NOT NULL,
    frontier  BLOB    NOT NULL,              -- roots of the perfect subtrees, largest first
    last_leaf BLOB    NOT NULL,
    calls     INTEGER NOT NULL               -- the next sequence_no
) STRICT;

CREATE TABLE record (
    place INTEGER PRIMARY KEY,
    bytes TEXT NOT NULL,                     -- canonical JSON, exactly as hashed
    leaf  BLOB NOT NULL
) STRICT;

-- The roots of complete subtrees of 256, 65 536, … records: what a proof of any record needs in
-- logarithmic time.
CREATE TABLE subtree (
    log   INTEGER NOT NULL,
    level INTEGER NOT NULL,                  -- in units of 8: level 1 covers 256 records
    idx   INTEGER NOT NULL,
    hash  BLOB    NOT NULL,
    PRIMARY KEY (log, level, idx)
) STRICT, WITHOUT ROWID;

-- The kept part of the body that a record seals: arguments of an enter, result of an exit.
-- Deleting a row erases body and salt and breaks no proof.
CREATE TABLE body (
    place INTEGER PRIMARY KEY,
    salt  BLOB NOT NULL,
    kept  BLOB NOT NULL
) STRICT;

CREATE TABLE call (
    number  INTEGER PRIMARY KEY,
    enter   INTEGER NOT NULL,                -- place of the enter record
    exit    INTEGER,                         -- place of the exit record; NULL while it runs
    process TEXT    NOT NULL
) STRICT;

CREATE INDEX call_open ON call (process) WHERE exit IS NULL;

CREATE TABLE checkpoint (
    log  INTEGER NOT NULL,
    size INTEGER NOT NULL,
    note TEXT    NOT NULL,
    PRIMARY KEY (log, size)
) STRICT, WITHOUT ROWID;

-- What people ask about: one row a call.
CREATE VIEW actions AS
SELECT call.number & 0xFFFFFFFFFF                             AS sequence_no,
       call.number >> 40                                      AS log,
       call.enter  & 0xFFFFFFFFFF                             AS enter_index,
       call.exit   & 0xFFFFFFFFFF                             AS exit_index,
       enter.bytes ->> '$.at'                                 AS at,
       enter.bytes ->> '$.facts.call'                         AS call,
       enter.bytes ->> '$.facts.tool'                         AS tool,
       enter.bytes ->> '$.facts.principal.client'             AS client,
       enter.bytes ->> '$.facts.principal.user'               AS user,
       coalesce(exit.bytes ->> '$.facts.outcome', 'running')  AS outcome,
       exit.bytes  ->> '$.facts.code'                         AS code,
       exit.bytes  ->> '$.facts.duration_ms'                  AS duration_ms,
       exit.bytes  ->> '$.facts.result.digest'                AS result_hash
FROM call
JOIN record AS enter ON enter.place = call.enter
LEFT JOIN record AS exit ON exit.place = call.exit;
