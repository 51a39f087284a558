//! Grants in private files: one a server, mode 0600, in a folder that only its owner may enter.
//!
//! Owns: the folder, the format, that a file is replaced whole, and the locks between processes.
//! Must not know: how a grant is had or what it is good for. No error shows what is in a file.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::domain::audit::Pending;
use crate::domain::clock::Timestamp;
use crate::domain::grant::{Client, Grant, Hold, Secret, Tokens, Vault, VaultError};

use super::error::StoreError;
use super::files::{private, sync_folder_of};

/// Several times what the longest tokens take.
const GRANT_BYTES_MAX: u64 = 256 << 10;

/// More servers than anybody has signed in to.
const GRANTS_MAX: usize = 4096;

/// How long one renewal may keep another process from its own: a renewal's own requests end sooner.
const HOLD_PATIENCE: Duration = Duration::from_secs(90);

/// How often it is looked whether the other is done. A wait in the kernel could not be given up.
const HOLD_POLL: Duration = Duration::from_millis(20);

/// The version of the format.
const VERSION: u32 = 1;

/// The folder of grants.
#[derive(Clone, Debug)]
pub struct TokenFiles {
    folder: PathBuf,
}

impl TokenFiles {
    /// The grants below the folder for colibri's data. Nothing is made before there is one to keep.
    pub fn below(data_dir: &Path) -> Self {
        Self { folder: data_dir.join("tokens") }
    }

    /// Every grant, in the order of the servers' addresses; and what is wrong with files that hold none.
    pub fn all(&self) -> Result<(Vec<Grant>, Vec<VaultError>), VaultError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
            Err(error) => return Err(StoreError::file("read the folder", &self.folder)(error).into()),
        };
        let (mut grants, mut broken) = (Vec::new(), Vec::new());
        for entry in entries.flatten().take(GRANTS_MAX) {
            let path = entry.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                match read(&path) {
                    Ok(grant) => grants.extend(grant),
                    Err(error) => broken.push(error),
                }
            }
        }
        grants.sort_by(|one, other| one.server.cmp(&other.server));
        Ok((grants, broken))
    }

    /// An address may be longer than a file's name, and may itself hold a secret.
    fn path(&self, server: &str, ending: &str) -> PathBuf {
        let digest: [u8; 32] = Sha256::digest(server.as_bytes()).into();
        let (half, _) = digest.split_first_chunk::<16>().expect("16 of 32");
        self.folder.join(format!("{:032x}.{ending}", u128::from_be_bytes(*half)))
    }

    fn prepare(&self) -> Result<(), VaultError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        Ok(made.map_err(StoreError::file("create the folder", &self.folder))?)
    }

    fn write(&self, grant: &Grant) -> Result<(), VaultError> {
        self.prepare()?;
        let path = self.path(&grant.server, "json");
        let waiting = self.path(&grant.server, &format!("{}.new", Uuid::now_v7().simple()));
        let text = serde_json::to_vec_pretty(&Written::from(grant)).expect("texts and numbers serialise");
        let replaced = replace(&path, &waiting, &text);
        if replaced.is_err() {
            // A half-written secret is of no use to anybody.
            let _ = std::fs::remove_file(&waiting);
        }
        Ok(replaced?)
    }

    fn remove(&self, server: &str) -> Result<bool, VaultError> {
        let path = self.path(server, "json");
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(sync_folder_of(&path).map(|()| true)?),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::file("remove", &path)(error).into()),
        }
    }

    fn open_lock(&self, server: &str) -> Result<File, VaultError> {
        self.prepare()?;
        let path = self.path(server, "lock");
        Ok(private(OpenOptions::new().append(true).create(true), &path)?)
    }
}

impl Vault for TokenFiles {
    fn load<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Option<Grant>, VaultError>> {
        let path = self.path(server, "json");
        let server = server.to_owned();
        Box::pin(aside(move || {
            let grant = read(&path)?;
            // The name of the file is a digest cut short; what is inside decides.
            Ok(grant.filter(|grant| grant.server == server))
        }))
    }

    fn save(&self, grant: Grant) -> Pending<'_, Result<(), VaultError>> {
        let this = self.clone();
        Box::pin(aside(move || this.write(&grant)))
    }

    fn forget<'a>(&'a self, server: &'a str) -> Pending<'a, Result<bool, VaultError>> {
        let (this, server) = (self.clone(), server.to_owned());
        Box::pin(aside(move || this.remove(&server)))
    }

    fn hold<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Hold, VaultError>> {
        Box::pin(async move {
            let lock = self.open_lock(server)?;
            let begun = Instant::now();
            loop {
                match lock.try_lock() {
                    Ok(()) => return Ok(Hold::new(lock)),
                    Err(TryLockError::WouldBlock) if begun.elapsed() < HOLD_PATIENCE => {}
                    Err(error) => {
                        let path = self.path(server, "lock");
                        return Err(VaultError(format!("cannot lock {}: {error}", path.display())));
                    }
                }
                sleep(HOLD_POLL).await;
            }
        })
    }
}

/// Disks are waited for on a thread of their own.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VaultError> + Send + 'static,
) -> Result<T, VaultError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(VaultError("the runtime is ending".to_owned())))
}

/// A new file in the place of the old: at once or not at all.
fn replace(path: &Path, waiting: &Path, text: &[u8]) -> Result<(), StoreError> {
    let mut file = private(OpenOptions::new().write(true).create_new(true), waiting)?;
    file.write_all(text).and_then(|()| file.sync_all()).map_err(StoreError::file("write", waiting))?;
    std::fs::rename(waiting, path).map_err(StoreError::file("replace", path))?;
    sync_folder_of(path)
}

fn read(path: &Path) -> Result<Option<Grant>, VaultError> {
    let broken = |what: &str| VaultError(format!("{}: {what}", path.display()));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::file("open", path)(error).into()),
    };
    let mode = file.metadata().map_err(StoreError::file("read", path))?.permissions().mode();
    if mode & 0o077 != 0 {
        let mode = mode & 0o777;
        return Err(broken(&format!("is open to others (mode {mode:03o}): run `chmod 600` on it")));
    }
    let mut text = Vec::new();
    file.take(GRANT_BYTES_MAX).read_to_end(&mut text).map_err(StoreError::file("read", path))?;
    // What the parser says could quote what it found.
    let Ok(written) = serde_json::from_slice::<Written>(&text) else {
        return Err(broken("is not a grant: remove it, and sign in again"));
    };
    if written.version != VERSION {
        return Err(broken("was written by another version of colibri: remove it, and sign in again"));
    }
    Ok(Some(written.into()))
}

impl From<StoreError> for VaultError {
    fn from(error: StoreError) -> Self {
        Self(error.to_string())
    }
}

/// A grant as it stands in its file. The only place where its secrets are written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    version: u32,
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    client_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<WrittenTokens>,
    scopes: Vec<String>,
    #[serde(default)]
    wanted: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenTokens {
    access: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh: Option<String>,
    /// Milliseconds since 1970, as all times in colibri's files.
    received_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
}

impl From<&Grant> for Written {
    fn from(grant: &Grant) -> Self {
        let shown = |secret: &Secret| secret.expose().to_owned();
        let tokens = grant.tokens.as_ref().map(|tokens| WrittenTokens {
            access: shown(&tokens.access),
            refresh: tokens.refresh.as_ref().map(shown),
            received_at: tokens.received_at.0,
            expires_at: tokens.expires_at.map(|end| end.0),
        });
        Self {
            version: VERSION,
            server: grant.server.clone(),
            issuer: grant.issuer.clone(),
            client_id: grant.client.id.clone(),
            client_secret: grant.client.secret.as_ref().map(shown),
            tokens,
            scopes: grant.scopes.clone(),
            wanted: grant.wanted.clone(),
        }
    }
}

impl From<Written> for Grant {
    fn from(written: Written) -> Self {
        let tokens = written.tokens.map(|tokens| Tokens {
            access: Secret::new(tokens.access),
            refresh: tokens.refresh.map(Secret::new),
            received_at: Timestamp(tokens.received_at),
            expires_at: tokens.expires_at.map(Timestamp),
        });
        Self {
            server: written.server,
            issuer: written.issuer,
            client: Client { id: written.client_id, secret: written.client_secret.map(Secret::new) },
            tokens,
            scopes: written.scopes,
            wanted: written.wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(server: &str) -> Grant {
        Grant {
            server: server.to_owned(),
            issuer: Some("https://issuer.example".to_owned()),
            client: Client { id: "id".to_owned(), secret: Some(Secret::new("canary-client")) },
            tokens: Some(Tokens {
                access: Secret::new("canary-access"),
                refresh: Some(Secret::new("canary-refresh")),
                received_at: Timestamp(1),
                expires_at: Some(Timestamp(2)),
            }),
            scopes: vec!["a".to_owned()],
            wanted: vec!["b".to_owned()],
        }
    }

    #[tokio::test]
    async fn a_grant_comes_back_as_it_was_from_a_file_that_only_its_owner_reads() {
        let home = tempfile::tempdir().unwrap();
        let files = TokenFiles::below(&home.path().join("data"));
        let one = grant("https://one.example/mcp");
        assert_eq!(files.load(&one.server).await, Ok(None));
        files.save(one.clone()).await.unwrap();
        files.save(grant("https://two.example/mcp")).await.unwrap();
        assert_eq!(files.load(&one.server).await, Ok(Some(one.clone())));
        let (all, broken) = files.all().unwrap();
        assert_eq!((all.len(), broken.len(), &all[0]), (2, 0, &one));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&files.folder), 0o700);
        for entry in std::fs::read_dir(&files.folder).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
        assert_eq!(files.forget(&one.server).await, Ok(true));
        assert_eq!(files.forget(&one.server).await, Ok(false));
        assert_eq!(files.load(&one.server).await, Ok(None));
    }

    #[tokio::test]
    async fn a_file_that_is_open_to_others_or_damaged_is_refused_without_showing_it() {
        let home = tempfile::tempdir().unwrap();
        let files = TokenFiles::below(home.path());
        let one = grant("https://one.example/mcp");
        files.save(one.clone()).await.unwrap();
        let path = files.path(&one.server, "json");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let refused = files.load(&one.server).await.unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(&path, r#"{"version":1,"server":"canary","tokens":"canary"}"#).unwrap();
        let refused = files.load(&one.server).await.unwrap_err().to_string();
        assert!(refused.contains("sign in again") && !refused.contains("canary"), "{refused}");
        assert_eq!(files.all().unwrap().1.len(), 1);
        files.save(one.clone()).await.unwrap();
        assert_eq!(files.load(&one.server).await, Ok(Some(one)));
    }

    #[tokio::test]
    async fn one_renews_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let files = TokenFiles::below(home.path());
        let hold = files.hold("server").await.unwrap();
        // Another handle stands for another process: locks belong to open files.
        let other = files.clone();
        let waiting = tokio::spawn(async move { other.hold("server").await.map(drop) });
        files.hold("another").await.map(drop).unwrap();
        assert!(!waiting.is_finished());
        drop(hold);
        waiting.await.unwrap().unwrap();
    }
}
