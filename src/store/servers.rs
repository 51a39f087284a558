//! What is known of other servers from one start to the next.

use rusqlite::{OptionalExtension, params};

use crate::domain::merkle::Hash;

use super::Store;
use super::error::StoreError;
use super::ledger::Ledger;
use super::read::Reader;

impl Store {
    /// Remembers which protocol family a server speaks.
    pub async fn remember_family(&self, server: Hash, family: &'static str) -> Result<(), StoreError> {
        self.write(move |ledger| ledger.remember_family(server, family)).await
    }
}

impl Reader {
    /// The family a server spoke the last time.
    pub fn family(&self, server: Hash) -> Result<Option<String>, StoreError> {
        self.connection
            .prepare_cached("SELECT family FROM server_family WHERE server = ?")
            .and_then(|mut statement| statement.query_row([server.0], |row| row.get(0)).optional())
            .map_err(StoreError::database("read what a server speaks"))
    }
}

impl Ledger<'_> {
    fn remember_family(&mut self, server: Hash, family: &str) -> Result<(), StoreError> {
        let sql = "INSERT OR REPLACE INTO server_family (server, family) VALUES (?, ?)";
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params![server.0, family]))
            .map_err(StoreError::database("remember what a server speaks"))?;
        Ok(())
    }
}
