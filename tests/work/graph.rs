//! Random work on one store, beside a model of it that recomputes everything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use colibri::domain::audit::{CallId, Durability, Payloads};
use colibri::domain::clock::{Clock, Moment, Timestamp};
use colibri::domain::log::Logger;
use colibri::domain::task::ask::{Needs, New, NextActions, Patch};
use colibri::domain::task::{LEASE_MS, Priority, Status, Task};
use colibri::domain::thought::Kind;
use colibri::store::{Act, NewThought, Options, Reader, Store};
use proptest::prelude::*;
use proptest::sample::Index;

/// One random act.
#[derive(Clone, Debug)]
enum Op {
    Create { priority: Priority, project: bool, needs: Vec<Index> },
    Need { task: Index, needs: Vec<Index> },
    Go { task: Index, to: Status },
    Prioritise { task: Index, priority: Priority },
    Claim { agent: usize, project: bool },
    Wait { ms: u64 },
}

const AGENTS: [&str; 3] = ["ada", "bob", "cleo"];

proptest! {
    #![proptest_config(ProptestConfig { cases: if super::client::is_full_check() { 200 } else { 24 }, ..ProptestConfig::default() })]

    /// SU-7, SU-8: no cycle is ever accepted and none is refused without reason, the counts are those of a recount, the
    /// state machine lets through what the model does, and what is next is what sorting everything gives.
    #[test]
    fn the_store_agrees_with_a_naive_model(ops in prop::collection::vec(op(), 1..50)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(ops))?;
    }
}

fn op() -> impl Strategy<Value = Op> {
    let indices = || prop::collection::vec(any::<Index>(), 0..4);
    let priority = || prop::sample::select(Priority::ALL.to_vec());
    prop_oneof![
        4 => (priority(), any::<bool>(), indices()).prop_map(|(priority, project, needs)| Op::Create { priority, project, needs }),
        4 => (any::<Index>(), indices()).prop_map(|(task, needs)| Op::Need { task, needs }),
        4 => (any::<Index>(), prop::sample::select(Status::ALL.to_vec())).prop_map(|(task, to)| Op::Go { task, to }),
        1 => (any::<Index>(), priority()).prop_map(|(task, priority)| Op::Prioritise { task, priority }),
        2 => (0..AGENTS.len(), any::<bool>()).prop_map(|(agent, project)| Op::Claim { agent, project }),
        1 => (0..LEASE_MS).prop_map(|ms| Op::Wait { ms }),
    ]
}

/// A task as the model has it; needs are places in the model's list.
#[derive(Clone, Debug)]
struct Known {
    id: String,
    status: Status,
    priority: Priority,
    project: bool,
    needs: BTreeSet<usize>,
    holder: Option<(usize, u64)>,
    attempt: u32,
    version: u64,
}

struct World {
    store: Store,
    reader: Reader,
    now: u64,
    tasks: Vec<Known>,
}

async fn run(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        database: folder.path().join("colibri.db"),
        durability: Durability::Relaxed,
        payloads: Payloads::None,
        version: "1".to_owned(),
        clock: Arc::new(Still),
        logger: Logger::silent(),
    };
    let (store, closing) = Store::open(options).unwrap();
    store.ready().await.unwrap();
    let reader = store.reader().unwrap();
    let mut world = World { store, reader, now: 1_000, tasks: Vec::new() };
    for op in ops {
        world.act(&op).await?;
        world.compare(&op)?;
    }
    let chains = world.reader.verify_trail().unwrap();
    prop_assert!(chains.iter().all(|walked| walked.chain.broken_count == 0));
    closing.close().await;
    Ok(())
}

impl World {
    async fn act(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op {
            Op::Create { priority, project, needs } => self.create(*priority, *project, needs).await,
            Op::Wait { ms } => {
                self.now += ms;
                Ok(())
            }
            Op::Claim { agent, project } => self.claim(*agent, *project).await,
            _ if self.tasks.is_empty() => Ok(()),
            Op::Need { task, needs } => self.need(task.index(self.tasks.len()), needs).await,
            Op::Go { task, to } => self.go(task.index(self.tasks.len()), *to).await,
            Op::Prioritise { task, priority } => {
                let place = task.index(self.tasks.len());
                let patch = Patch { priority: Some(*priority), ..Patch::default() };
                prop_assert!(self.update(place, patch).await.is_ok());
                self.tasks[place].priority = *priority;
                self.touched(place);
                Ok(())
            }
        }
    }

    async fn create(
        &mut self,
        priority: Priority,
        project: bool,
        needs: &[Index],
    ) -> Result<(), TestCaseError> {
        let needs = if self.tasks.is_empty() { BTreeSet::new() } else { self.places(needs) };
        let new = New {
            title: self.tasks.len().to_string(),
            description: None,
            priority: Some(priority),
            labels: None,
            assignee: None,
            project_id: project.then(|| "p".to_owned()),
            depends_on: Some(self.ids(&needs)),
        };
        let task = self.store.create_task(self.moment(), new).await.unwrap().unwrap();
        let (id, status) = (task.id, Status::Init);
        self.tasks.push(Known { id, status, priority, project, needs, holder: None, attempt: 1, version: 1 });
        Ok(())
    }

    async fn need(&mut self, place: usize, needs: &[Index]) -> Result<(), TestCaseError> {
        let needs = self.places(needs);
        let cycle = needs.iter().any(|need| self.reaches(*need, place));
        let patch = Patch { depends_on: Some(self.ids(&needs)), ..Patch::default() };
        match self.update(place, patch).await {
            Ok(_) => {
                prop_assert!(!cycle, "a cycle was accepted");
                self.tasks[place].needs = needs;
                self.touched(place);
            }
            Err(code) => prop_assert!(cycle && code == "ERR_CYCLE", "{code} for no reason"),
        }
        Ok(())
    }

    async fn go(&mut self, place: usize, to: Status) -> Result<(), TestCaseError> {
        let from = self.tasks[place].status;
        if from == Status::Verify && to == Status::Done {
            let patch = || Patch { status: Some(to), ..Patch::default() };
            let has_reason = self.task(place).thoughts > 0;
            let first = self.update(place, patch()).await;
            prop_assert_eq!(first.is_ok(), has_reason);
            if !has_reason {
                prop_assert_eq!(first.unwrap_err(), "ERR_WRITEBACK_REQUIRED");
                self.think(place).await;
                prop_assert!(self.update(place, patch()).await.is_ok());
            }
        } else {
            let outcome = self.update(place, Patch { status: Some(to), ..Patch::default() }).await;
            let allowed = from == to || from.next().contains(&to);
            prop_assert_eq!(outcome.is_ok(), allowed, "from {:?} to {:?}", from, to);
            if !allowed {
                return Ok(());
            }
        }
        let task = &mut self.tasks[place];
        task.attempt += u32::from(from == Status::Verify && to == Status::Gather);
        task.status = to;
        self.touched(place);
        Ok(())
    }

    async fn claim(&mut self, agent: usize, project: bool) -> Result<(), TestCaseError> {
        let best = self.next(project, |holder| holder.is_none()).first().copied();
        let ask = NextActions {
            agent_id: Some(AGENTS[agent].to_owned()),
            project_id: project.then(|| "p".to_owned()),
            limit: None,
            claim: true,
        };
        let claimed = self.store.claim_task(self.moment(), ask).await.unwrap();
        prop_assert_eq!(claimed.map(|task| task.id), best.map(|place| self.tasks[place].id.clone()));
        if let Some(place) = best {
            self.tasks[place].holder = Some((agent, self.now + LEASE_MS));
            self.tasks[place].version += 1;
        }
        Ok(())
    }

    /// Everything the store says, against a recount.
    fn compare(&self, after: &Op) -> Result<(), TestCaseError> {
        for (place, known) in self.tasks.iter().enumerate() {
            let task = self.task(place);
            let is_open = |other: &usize| !self.tasks[*other].status.is_terminal();
            let blocked_by = known.needs.iter().filter(|need| is_open(need)).count() as u64;
            let waits = |other: &usize| is_open(other) && self.tasks[*other].needs.contains(&place);
            let dependants = (0..self.tasks.len()).filter(waits).count() as u64;
            let needs: BTreeSet<_> = known.needs.iter().map(|need| &self.tasks[*need].id).collect();
            prop_assert_eq!(task.blocked_by, blocked_by, "blocked_by of {} after {:?}", place, after);
            prop_assert_eq!(task.dependants, dependants, "dependants of {} after {:?}", place, after);
            prop_assert_eq!(task.depends_on.iter().collect::<BTreeSet<_>>(), needs);
            prop_assert_eq!((task.status, task.attempt), (known.status, known.attempt));
            prop_assert_eq!(task.version, known.version, "version of {} after {:?}", place, after);
            let holder = self.holder(known).map(|agent| AGENTS[agent].to_owned());
            prop_assert_eq!(task.assignee, holder);
        }
        for project in [false, true] {
            let everyone = self.next(project, |holder| holder.is_none());
            self.compare_next(None, project, &everyone)?;
            for (agent, name) in AGENTS.iter().enumerate() {
                let theirs = self.next(project, |holder| holder.is_none_or(|by| by == agent));
                self.compare_next(Some(name), project, &theirs)?;
            }
        }
        Ok(())
    }

    fn compare_next(
        &self,
        agent: Option<&str>,
        project: bool,
        expected: &[usize],
    ) -> Result<(), TestCaseError> {
        let ask = NextActions {
            agent_id: agent.map(str::to_owned),
            project_id: project.then(|| "p".to_owned()),
            limit: Some(7),
            claim: false,
        };
        let found = self.reader.next_actions(&ask, Timestamp(self.now)).unwrap();
        let found: Vec<_> = found.into_iter().map(|task| task.id).collect();
        let expected: Vec<_> = expected.iter().take(7).map(|place| self.tasks[*place].id.clone()).collect();
        prop_assert_eq!(found, expected, "next for {:?}, project {}", agent, project);
        Ok(())
    }

    /// All that can be done now by whom the holder suits, best first: everything, filtered and sorted.
    fn next(&self, project: bool, suits: impl Fn(Option<usize>) -> bool) -> Vec<usize> {
        let is_open = |place: usize| !self.tasks[place].status.is_terminal();
        let waiting = |place: usize| {
            self.tasks.iter().filter(|task| !task.status.is_terminal() && task.needs.contains(&place)).count()
        };
        let mut next: Vec<usize> = (0..self.tasks.len())
            .filter(|place| {
                let task = &self.tasks[*place];
                is_open(*place)
                    && (!project || task.project)
                    && !task.needs.iter().any(|need| is_open(*need))
                    && suits(self.holder(task))
            })
            .collect();
        next.sort_by_key(|place| (self.tasks[*place].priority, std::cmp::Reverse(waiting(*place)), *place));
        next
    }

    fn holder(&self, task: &Known) -> Option<usize> {
        task.holder.filter(|(_, until)| *until > self.now).map(|(agent, _)| agent)
    }

    /// A change: the version grows, and a claim that still holds is renewed.
    fn touched(&mut self, place: usize) {
        let now = self.now;
        let task = &mut self.tasks[place];
        task.version += 1;
        task.holder =
            task.holder.map(|(agent, until)| (agent, if until > now { now + LEASE_MS } else { until }));
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || self.tasks[from].needs.iter().any(|need| self.reaches(*need, to))
    }

    fn places(&self, indices: &[Index]) -> BTreeSet<usize> {
        indices.iter().map(|index| index.index(self.tasks.len())).collect()
    }

    fn ids(&self, places: &BTreeSet<usize>) -> Needs {
        Needs(places.iter().map(|place| self.tasks[*place].id.clone()).collect())
    }

    fn moment(&self) -> Act {
        Act { call: CallId(uuid::Uuid::now_v7()), at: Timestamp(self.now) }
    }

    async fn update(&self, place: usize, patch: Patch) -> Result<Task, &'static str> {
        let id = self.tasks[place].id.clone();
        let answer = self.store.update_task(self.moment(), id, patch, None).await.unwrap();
        answer.map_err(|refusal| refusal.code)
    }

    fn task(&self, place: usize) -> Task {
        self.reader.task(&self.tasks[place].id, Timestamp(self.now)).unwrap().unwrap()
    }

    async fn think(&self, place: usize) {
        let task_id = self.tasks[place].id.clone();
        let thought = NewThought {
            kind: Kind::Decision,
            task_id,
            agent_id: "a".to_owned(),
            content: "why".to_owned(),
            session_id: None,
        };
        self.store.record_thought(self.moment(), thought).await.unwrap().unwrap();
    }
}

/// The store's own clock plays no part here: every act brings its time.
struct Still;

impl Clock for Still {
    fn now(&self) -> Moment {
        Moment { wall: Timestamp(0), since_boot: Duration::ZERO }
    }
}
