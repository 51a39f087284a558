-- What was believed of the tools of other servers, each as it was last. Each change is also a record in
-- the ledger, in the same transaction, and `colibri audit verify` compares the two.
CREATE TABLE tool_pin (
    server TEXT    NOT NULL,                 -- its name in the configuration
    tool   TEXT    NOT NULL,                 -- as its server calls it
    digest BLOB    NOT NULL,                 -- of its definition
    place  INTEGER NOT NULL,                 -- of the record that says so
    PRIMARY KEY (server, tool)
) STRICT, WITHOUT ROWID;

-- The catalog that a server had last time. Not on record: it can be found out again.
CREATE TABLE server_catalog (
    server  BLOB    PRIMARY KEY,             -- digest of its effective configuration
    used_at INTEGER NOT NULL,                -- ms since 1970; what was not used for longest goes first
    catalog BLOB    NOT NULL
) STRICT;
