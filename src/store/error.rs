//! Why the store refuses or fails, in words that say what to do.

use std::path::{Path, PathBuf};

/// One enum for the whole boundary. Clonable, because one failed commit fails everybody in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The operating system said no.
    #[error("cannot {action} {}: {cause}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        cause: String,
    },
    /// SQLite said no.
    #[error("the database cannot {action}: {cause}")]
    Database {
        /// What was tried.
        action: &'static str,
        /// What SQLite said.
        cause: String,
        /// What can still be trusted.
        harm: Harm,
    },
    /// The file is not, or no longer, a sound database.
    #[error(
        "the database {} is damaged: {what}; restore a backup, or give the log up with `colibri audit accept-loss`",
        path.display()
    )]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A newer colibri has changed the schema.
    #[error(
        "the database has schema version {found}, and this colibri knows only {known}; use the newer colibri that wrote it"
    )]
    Newer {
        /// In the database.
        found: u32,
        /// In this program.
        known: u32,
    },
    /// File locks and shared memory do not work across machines.
    #[error(
        "{} is on a network file system ({kind}), where SQLite's locks are not safe; set COLIBRI_DB_PATH to a local disk",
        path.display()
    )]
    NetworkFileSystem {
        /// The database.
        path: PathBuf,
        /// The file system's type.
        kind: String,
    },
    /// A rollback journal that SQLite would write into the database. colibri keeps an empty one in its place.
    #[error(
        "{} has something in it, and colibri makes none that has: SQLite would write it into the ledger; if another program was interrupted \
         while it changed the database, let that program finish, else remove the file",
        path.display()
    )]
    ForeignJournal {
        /// The file.
        path: PathBuf,
    },
    /// The log is not what was signed.
    #[error(
        "the ledger contradicts its last signed checkpoint: {what}; restore the newest copy, or give the log up with `colibri audit accept-loss`"
    )]
    RolledBack {
        /// The contradiction.
        what: String,
    },
    /// The key that signs checkpoints is lost, unreadable or foreign.
    #[error(
        "the signing key {} {what}; restore it from a backup, or begin a new log with `colibri audit accept-loss`",
        path.display()
    )]
    Key {
        /// The key file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Nobody could write within the patience.
    #[error(
        "the ledger was busy for {0} ms: another process may be stopped while it holds {lock}",
        lock = "the write lock"
    )]
    Busy(u64),
    /// The disk took longer than the patience, after the act had begun.
    #[error(
        "the disk did not answer within {0} ms: what was asked may or may not have happened; read before asking again"
    )]
    InDoubt(u64),
    /// The store was closed.
    #[error("the ledger is closed")]
    Closed,
    /// Asked for something that is not there.
    #[error("{0}")]
    NotFound(String),
}

impl StoreError {
    pub(super) fn file(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |cause| Self::File { action, path: path.to_owned(), cause: cause.to_string() }
    }

    pub(super) fn database(action: &'static str) -> impl Fn(rusqlite::Error) -> Self {
        move |cause| Self::Database { action, harm: harm(&cause), cause: cause.to_string() }
    }

    /// The same, where it is known which file SQLite calls damaged.
    pub(super) fn in_file(self, database: &Path) -> Self {
        match self {
            Self::Database { cause, harm: Harm::File, .. } => {
                Self::Corrupt { path: database.to_owned(), what: cause }
            }
            other => other,
        }
    }

    /// Whether the connection must be given up. What concerns one verb only is not fatal.
    pub(super) fn is_fatal(&self) -> bool {
        match self {
            Self::Database { harm, .. } => *harm != Harm::Verb,
            Self::Busy(_) | Self::InDoubt(_) | Self::NotFound(_) => false,
            Self::File { .. }
            | Self::Corrupt { .. }
            | Self::Newer { .. }
            | Self::NetworkFileSystem { .. }
            | Self::ForeignJournal { .. }
            | Self::RolledBack { .. }
            | Self::Key { .. }
            | Self::Closed => true,
        }
    }
}

/// How far the harm of an answer of SQLite goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// One verb failed; the connection is sound.
    Verb,
    /// The connection is doubtful and must be given up.
    Connection,
    /// The file itself is damaged.
    File,
}

/// A constraint that was violated, or a lock not had, leaves the connection sound. Everything else
/// (I/O, full disk, memory) does not: never retry an fsync on the same descriptor.
fn harm(error: &rusqlite::Error) -> Harm {
    use rusqlite::ErrorCode::{
        ConstraintViolation, DatabaseBusy, DatabaseCorrupt, DatabaseLocked, NotADatabase,
    };
    match error.sqlite_error_code() {
        Some(ConstraintViolation | DatabaseBusy | DatabaseLocked) => Harm::Verb,
        Some(DatabaseCorrupt | NotADatabase) => Harm::File,
        _ => Harm::Connection,
    }
}
