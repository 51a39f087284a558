//! A fleet of servers in memory, and what a story asks of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use colibri::domain::audit::CallId;
use colibri::domain::chronicle::{Chronicle, NoChronicle};
use colibri::domain::clock::{Clock, Moment, Timestamp};
use colibri::domain::face::SessionId;
use colibri::domain::health::ServerFacts;
use colibri::domain::log::Logger;
use colibri::domain::mask::Masks;
use colibri::domain::names::{NAME_CHARS_DEFAULT, Naming};
use colibri::fleet::bus::Bus;
use colibri::fleet::catalog::Proxied;
use colibri::fleet::roster::{Calling, Common, Failed, Fleet, Member, Plan, Registry, What};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A fleet, and what a story asks of it.
pub(in crate::fleet) struct Watched {
    pub(in crate::fleet) fleet: Fleet,
    pub(in crate::fleet) clock: Arc<dyn Clock>,
    /// Cancelled when colibri is told to stop.
    pub(in crate::fleet) stopping: CancellationToken,
    pub(in crate::fleet) masks: Arc<Masks>,
    health: watch::Receiver<Vec<ServerFacts>>,
}

pub(in crate::fleet) fn fleet(members: Vec<Member>) -> Watched {
    planned(Plan { members, ..Plan::default() })
}

pub(in crate::fleet) fn planned(plan: Plan) -> Watched {
    remembering(plan, Arc::new(NoChronicle))
}

pub(in crate::fleet) fn remembering(plan: Plan, chronicle: Arc<dyn Chronicle>) -> Watched {
    whole(plan, chronicle, Logger::silent(), Registry::default())
}

/// A fleet whose connections are in that registry, where another may have the same.
pub(in crate::fleet) fn joining(members: Vec<Member>, registry: &Registry) -> Watched {
    let plan = Plan { members, ..Plan::default() };
    whole(plan, Arc::new(NoChronicle), Logger::silent(), registry.clone())
}

/// A fleet that says what it does.
pub(in crate::fleet) fn logging(members: Vec<Member>, logger: Logger) -> Watched {
    whole(Plan { members, ..Plan::default() }, Arc::new(NoChronicle), logger, Registry::default())
}

fn whole(plan: Plan, chronicle: Arc<dyn Chronicle>, logger: Logger, registry: Registry) -> Watched {
    let (publish, health) = watch::channel(Vec::new());
    let clock: Arc<dyn Clock> = Arc::new(Paused { begun: Instant::now(), last: Mutex::default() });
    let common = Common {
        init_concurrency: 8,
        naming: Naming::Prefixed,
        name_chars_max: NAME_CHARS_DEFAULT,
        reserved: Vec::new(),
        clock: Arc::clone(&clock),
        health: publish,
        bus: Bus::new(Arc::clone(&clock)),
        chronicle,
        logger,
        registry,
        masks: Arc::default(),
        stopping: CancellationToken::new(),
    };
    let (stopping, masks) = (common.stopping.clone(), Arc::clone(&common.masks));
    Watched { fleet: Fleet::start(plan, common), health, clock, stopping, masks }
}

/// As often nobody looks at a clock without letting it go on. Who runs in circles stops a paused one.
const LOOKS_MAX: u32 = 1_000_000;

/// The clock that tokio can pause.
struct Paused {
    begun: Instant,
    /// When it was looked at last, and how often then.
    last: Mutex<(Duration, u32)>,
}

impl Clock for Paused {
    fn now(&self) -> Moment {
        let since_boot = self.begun.elapsed();
        {
            let mut last = self.last.lock().expect("nobody ran in circles");
            *last = if last.0 == since_boot { (since_boot, last.1 + 1) } else { (since_boot, 0) };
            assert!(last.1 < LOOKS_MAX, "somebody runs in circles at {since_boot:?}");
        }
        Moment { wall: Timestamp(1_800_000_000_000 + since_boot.as_millis() as u64), since_boot }
    }
}

impl Watched {
    pub(in crate::fleet) fn names(&self) -> Vec<String> {
        self.fleet.catalog().borrow().tools().iter().map(|tool| tool.name.to_string()).collect()
    }

    /// Waits until so many tools are listed.
    pub(in crate::fleet) async fn listed(&self, count: usize) {
        let mut catalog = self.fleet.catalog();
        catalog.wait_for(|catalog| catalog.tools().len() == count).await.expect("the fleet is there");
    }

    /// Waits until the facts of all servers are so.
    pub(in crate::fleet) async fn health_is(&self, is_so: impl Fn(&Vec<ServerFacts>) -> bool) {
        self.health.clone().wait_for(is_so).await.expect("the fleet is there");
    }

    /// Waits until a server is in that state.
    pub(in crate::fleet) async fn state_is(&self, name: &str, state: &str) {
        let is_there =
            |facts: &Vec<ServerFacts>| facts.iter().any(|facts| facts.name == name && facts.state == state);
        self.health.clone().wait_for(is_there).await.expect("the fleet is there");
    }

    pub(in crate::fleet) async fn call(&self, name: &str) -> Result<Bytes, Failed> {
        self.call_with(name, CancellationToken::new()).await
    }

    pub(in crate::fleet) async fn call_with(
        &self,
        name: &str,
        cancel: CancellationToken,
    ) -> Result<Bytes, Failed> {
        self.call_tool(&self.tool(name), cancel).await
    }

    pub(in crate::fleet) fn tool(&self, name: &str) -> Arc<Proxied> {
        self.fleet.catalog().borrow().get(name).cloned().expect("it is listed")
    }

    pub(in crate::fleet) async fn call_tool(
        &self,
        tool: &Proxied,
        cancel: CancellationToken,
    ) -> Result<Bytes, Failed> {
        self.call_in(SessionId::default(), tool, cancel).await
    }

    pub(in crate::fleet) async fn call_saying(&self, name: &str, arguments: &[u8]) -> Result<Bytes, Failed> {
        let tool = self.tool(name);
        let (id, arrived, session) = (CallId(Uuid::nil()), self.clock.now(), SessionId::default());
        let (what, cancel) = (What::Tool { tool: &tool, arguments }, CancellationToken::new());
        self.fleet.call(Calling { id, arrived, session, what, notices: None, cancel, rounds: None }).await
    }

    pub(in crate::fleet) async fn call_in(
        &self,
        session: SessionId,
        tool: &Proxied,
        cancel: CancellationToken,
    ) -> Result<Bytes, Failed> {
        let what = What::Tool { tool, arguments: b"{}" };
        let (id, arrived) = (CallId(Uuid::nil()), self.clock.now());
        self.fleet.call(Calling { id, arrived, session, what, notices: None, cancel, rounds: None }).await
    }
}
