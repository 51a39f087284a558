//! Grants that last as long as the process, for programs that keep none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::domain::audit::Pending;
use crate::domain::grant::{Grant, Hold, Vault, VaultError};

/// A vault in memory. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct MemoryVault {
    grants: Arc<Mutex<HashMap<String, Grant>>>,
    /// One for all servers: nothing here is in a hurry.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl MemoryVault {
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<String, Grant>) -> T) -> T {
        work(&mut self.grants.lock().expect("nothing panics while it holds the grants"))
    }
}

impl Vault for MemoryVault {
    fn load<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Option<Grant>, VaultError>> {
        Box::pin(async move { Ok(self.with(|grants| grants.get(server).cloned())) })
    }

    fn save(&self, grant: Grant) -> Pending<'_, Result<(), VaultError>> {
        Box::pin(async move {
            self.with(|grants| grants.insert(grant.server.clone(), grant));
            Ok(())
        })
    }

    fn forget<'a>(&'a self, server: &'a str) -> Pending<'a, Result<bool, VaultError>> {
        Box::pin(async move { Ok(self.with(|grants| grants.remove(server).is_some())) })
    }

    fn hold<'a>(&'a self, _: &'a str) -> Pending<'a, Result<Hold, VaultError>> {
        Box::pin(async move { Ok(Hold::new(Arc::clone(&self.turn).lock_owned().await)) })
    }
}
