-- The skills that were met, each as it was last. Each change is also a record in the ledger, in the
-- same transaction.

CREATE TABLE skill (
    folder TEXT PRIMARY KEY,
    digest BLOB    NOT NULL,                 -- over its files
    place  INTEGER NOT NULL                  -- of the record that says so
) STRICT, WITHOUT ROWID;
