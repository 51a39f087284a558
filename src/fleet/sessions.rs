//! One connection for each session of a client.
//!
//! Owns: who has which, and that nobody gets what another session has used. The supervised connection that listed
//! the tools is the first session's, so that it was not started for nothing.
//! Must not know: calls, or what a session is to its client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::join_all;
use tokio_util::task::TaskTracker;

use crate::domain::face::SessionId;
use crate::domain::provider::{ProviderError, Unavailable};

use super::bus::Bus;
use super::supervisor::{Supervised, Surroundings};
use super::terms::Recipe;

/// Sessions of one server, each with a process of its own. One more is told to come back later.
pub(super) const SESSIONS_MAX: usize = 64;

/// The connections of all sessions.
pub(super) struct Sessions {
    recipe: Recipe,
    surroundings: Surroundings,
    scout: Supervised,
    kept: Arc<Mutex<Kept>>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Kept {
    scout_is: Scout,
    own: BTreeMap<SessionId, Supervised>,
    over: bool,
}

/// Whose the scout is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scout {
    /// Nobody has used its connection.
    #[default]
    Fresh,
    Of(SessionId),
    /// Its session has left; nobody may have its connection before that is gone.
    Leaving,
}

impl Sessions {
    pub(super) fn new(recipe: Recipe, scout: &Supervised, surroundings: &Surroundings) -> Self {
        // How the server is, its scout tells. What befalls a single session is no news about the server.
        let bus = Bus::new(Arc::clone(&surroundings.clock));
        let surroundings = Surroundings { bus, ..surroundings.clone() };
        let (kept, tasks) = (Arc::default(), TaskTracker::new());
        Self { recipe, surroundings, scout: scout.clone(), kept, tasks }
    }

    /// The connection of a session; a new one, if it has none.
    pub(super) fn of(&self, session: SessionId) -> Result<Supervised, ProviderError> {
        let mut kept = self.kept();
        if kept.over {
            return Err(ProviderError::Terminated);
        }
        if let Some(own) = kept.own.get(&session) {
            return Ok(own.clone());
        }
        if kept.scout_is == Scout::Fresh {
            kept.scout_is = Scout::Of(session);
        }
        if kept.scout_is == Scout::Of(session) {
            return Ok(self.scout.clone());
        }
        if kept.own.len() >= SESSIONS_MAX {
            self.make_room(&mut kept)?;
        }
        let own = Supervised::start((self.recipe)(), self.surroundings.clone(), None);
        kept.own.insert(session, own.clone());
        Ok(own)
    }

    /// Forgets a session that uses nothing now.
    fn make_room(&self, kept: &mut Kept) -> Result<(), ProviderError> {
        let at_rest = |own: &Supervised| own.usage().calls() == 0 && own.status().borrow().state.is_at_rest();
        let idle = kept.own.iter().find(|(_, own)| at_rest(own)).map(|(session, _)| *session);
        let Some(own) = idle.and_then(|session| kept.own.remove(&session)) else {
            return Err(ProviderError::Unavailable {
                reason: Unavailable::InitFailed,
                why: format!("{SESSIONS_MAX} sessions have a process of it already").into(),
                age: None,
            });
        };
        self.tasks.spawn(async move { own.close().await });
        Ok(())
    }

    /// A session has left: its connection ends.
    pub(super) fn left(&self, session: SessionId) {
        // Without a runtime nothing runs that could be ended.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut kept = self.kept();
        if let Some(own) = kept.own.remove(&session) {
            self.tasks.spawn_on(async move { own.close().await }, &runtime);
        } else if kept.scout_is == Scout::Of(session) {
            kept.scout_is = Scout::Leaving;
            let (scout, kept) = (self.scout.clone(), Arc::clone(&self.kept));
            let ending = async move {
                scout.rest().await;
                // Fails only if the scout has ended, and its connection with it.
                let _ = scout.status().wait_for(|status| status.live.is_none()).await;
                kept.lock().expect("nothing panics while it holds the sessions").scout_is = Scout::Fresh;
            };
            self.tasks.spawn_on(ending, &runtime);
        }
    }

    /// Ends them all but the scout, for now: the next call of a session begins anew.
    pub(super) async fn rest(&self) {
        let ending: Vec<_> = {
            let mut kept = self.kept();
            let own = std::mem::take(&mut kept.own).into_values();
            // Whoever closes meanwhile finds none of them, and waits for these tasks.
            own.map(|own| self.tasks.spawn(async move { own.close().await })).collect()
        };
        join_all(ending).await;
    }

    /// Ends them all but the scout; returns when nothing of them is left.
    pub(super) async fn close(&self) {
        let own = {
            let mut kept = self.kept();
            kept.over = true;
            std::mem::take(&mut kept.own)
        };
        join_all(own.values().map(Supervised::close)).await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("nothing panics while it holds the sessions")
    }
}
