-- What is known of other servers from one start to the next. Not on record: it can be found out again.

CREATE TABLE server_family (
    server BLOB PRIMARY KEY,                 -- digest of its effective configuration
    family TEXT NOT NULL                     -- 'legacy' or 'modern'
) STRICT, WITHOUT ROWID;
