//! The ledger as an audit sink: how the call path's port becomes records.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::domain::audit::{AuditError, AuditSink, CallId, Durability, Enter, Exit, Pending};

use super::calls::Entry;
use super::{Store, StoreError};

/// Keeps the entry of every open call between its enter and its exit.
pub struct LedgerSink {
    store: Store,
    open: Mutex<HashMap<CallId, Entry>>,
}

impl LedgerSink {
    /// Records every call in the store's ledger.
    pub fn new(store: Store) -> Self {
        Self { store, open: Mutex::default() }
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, HashMap<CallId, Entry>> {
        self.open.lock().expect("nothing panics while it holds the entries")
    }
}

impl AuditSink for LedgerSink {
    fn enter<'a>(&'a self, event: &'a Enter) -> Pending<'a, Result<(), AuditError>> {
        Box::pin(async move {
            let enter = event.clone();
            let entry = self.store.write(move |ledger| ledger.open_call(&enter)).await?;
            self.entries().insert(event.call, entry);
            Ok(())
        })
    }

    fn exit<'a>(&'a self, event: &'a Exit) -> Pending<'a, Result<(), AuditError>> {
        Box::pin(async move {
            // No entry, no exit: the enter failed, and a lone exit would prove nothing.
            let Some(entry) = self.entries().remove(&event.call) else { return Ok(()) };
            let exit = event.clone();
            let close = move |ledger: &mut super::ledger::Ledger<'_>| ledger.close_call(entry, &exit);
            match self.store.durability() {
                Durability::Strict => self.store.write(close).await?,
                Durability::Admission | Durability::Relaxed => self.store.write_behind(close).await?,
            }
            Ok(())
        })
    }

    fn rejected<'a>(&'a self, enter: &'a Enter, exit: &'a Exit) -> Pending<'a, Result<(), AuditError>> {
        Box::pin(async move {
            let (enter, exit) = (enter.clone(), exit.clone());
            let reject = move |ledger: &mut super::ledger::Ledger<'_>| ledger.reject_call(&enter, &exit);
            match self.store.durability() {
                Durability::Strict => self.store.write(reject).await?,
                // Nothing ran, so nothing must be on disk before anything.
                Durability::Admission | Durability::Relaxed => self.store.write_behind(reject).await?,
            }
            Ok(())
        })
    }
}

impl From<StoreError> for AuditError {
    fn from(error: StoreError) -> Self {
        Self(error.to_string())
    }
}
