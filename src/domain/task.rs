//! Tasks: their states, what leads to what, and what may be written on one.
//!
//! Owns: the state machine and the dependency rule, as pure values. The store enforces both inside
//! its transaction, so that two agents cannot both win.

pub mod ask;

use std::collections::{HashMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::failure::Refusal;

/// The codes with which task tools refuse.
pub mod code {
    /// There is no such task.
    pub const NOT_FOUND: &str = "ERR_NOT_FOUND";
    /// The state machine has no such step; the error carries `from`, `to` and `allowed`.
    pub const INVALID_TRANSITION: &str = "ERR_INVALID_TRANSITION";
    /// DONE needs a thought record of the task; the error carries `missing_fields`.
    pub const WRITEBACK_REQUIRED: &str = "ERR_WRITEBACK_REQUIRED";
    /// Somebody else changed the task; the error carries `expected` and `found`.
    pub const CONFLICT: &str = "ERR_CONFLICT";
    /// The tasks would wait for each other; the error carries the `cycle`.
    pub const CYCLE: &str = "ERR_CYCLE";
}

/// How long a claim lasts before it is given back.
pub const LEASE_MS: u64 = 30 * 60 * 1000;

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
pub enum Status {
    /// Created.
    Init,
    /// Gathering what is needed.
    Gather,
    /// Understanding it.
    Analyze,
    /// Deciding what to do.
    Plan,
    /// Doing it.
    Apply,
    /// Checking it.
    Verify,
    /// Done. The end.
    Done,
    /// Given up. The end.
    Cancelled,
}

impl Status {
    /// All of them, in order.
    pub const ALL: [Self; 8] = [
        Self::Init,
        Self::Gather,
        Self::Analyze,
        Self::Plan,
        Self::Apply,
        Self::Verify,
        Self::Done,
        Self::Cancelled,
    ];

    /// What may come next.
    pub fn next(self) -> &'static [Self] {
        match self {
            Self::Init => &[Self::Gather, Self::Cancelled],
            Self::Gather => &[Self::Analyze, Self::Cancelled],
            Self::Analyze => &[Self::Plan, Self::Cancelled],
            Self::Plan => &[Self::Apply, Self::Cancelled],
            Self::Apply => &[Self::Verify, Self::Cancelled],
            // Back to GATHER is another attempt.
            Self::Verify => &[Self::Done, Self::Gather, Self::Cancelled],
            Self::Done | Self::Cancelled => &[],
        }
    }

    /// Whether nothing comes next.
    pub fn is_terminal(self) -> bool {
        self.next().is_empty()
    }

    /// As it stands on the wire and in the store.
    pub fn name(self) -> &'static str {
        match self {
            Self::Init => "INIT",
            Self::Gather => "GATHER",
            Self::Analyze => "ANALYZE",
            Self::Plan => "PLAN",
            Self::Apply => "APPLY",
            Self::Verify => "VERIFY",
            Self::Done => "DONE",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The status of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// What a step does to a task's counters, or why it may not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it leads.
    pub to: Status,
    /// The attempt it belongs to.
    pub attempt: u32,
}

/// One step of the state machine. Staying is no step and always allowed.
pub fn step(from: Status, to: Status, attempt: u32, thoughts: u64) -> Result<Step, Refusal> {
    if from == to {
        return Ok(Step { to, attempt });
    }
    if !from.next().contains(&to) {
        let allowed: Vec<&str> = from.next().iter().map(|status| status.name()).collect();
        let shown = if allowed.is_empty() { "nothing: it has ended".to_owned() } else { allowed.join(", ") };
        let message = format!("a task cannot go from {} to {}; allowed: {shown}", from.name(), to.name());
        return Err(Refusal::new(code::INVALID_TRANSITION, message)
            .field("from", from.name())
            .field("to", to.name())
            .field("allowed", allowed));
    }
    if to == Status::Done && thoughts == 0 {
        let message = "a task is not done before its reasons are on record; add one with thought_record";
        return Err(
            Refusal::new(code::WRITEBACK_REQUIRED, message).field("missing_fields", vec!["thought_record"])
        );
    }
    let again = from == Status::Verify && to == Status::Gather;
    Ok(Step { to, attempt: attempt + u32::from(again) })
}

/// How urgent a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Priority {
    /// Before everything else.
    Critical,
    /// Soon.
    High,
    /// In its turn.
    #[default]
    Medium,
    /// When there is time.
    Low,
}

impl Priority {
    /// All of them, the most urgent first; the place is the rank.
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Medium, Self::Low];

    /// The most urgent is 0.
    pub fn rank(self) -> u8 {
        self as u8
    }

    /// The priority of that rank.
    pub fn of_rank(rank: u8) -> Option<Self> {
        Self::ALL.get(usize::from(rank)).copied()
    }

    /// As it stands on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// One task, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Task {
    /// A UUID.
    pub id: String,
    /// What is to be done.
    pub title: String,
    /// The rest of it.
    pub description: Option<String>,
    /// Where it is.
    pub status: Status,
    /// How urgent it is.
    pub priority: Priority,
    /// Free words.
    pub labels: Vec<String>,
    /// Who works on it.
    pub assignee: Option<String>,
    /// Until when a claim holds; absent if the assignee was named, not claimed.
    pub lease_until: Option<String>,
    /// What it belongs to.
    pub project_id: Option<String>,
    /// Tasks that must end first.
    pub depends_on: Vec<String>,
    /// How many of those have not ended.
    pub blocked_by: u64,
    /// How many tasks wait for it.
    pub dependants: u64,
    /// Which try this is, from 1.
    pub attempt: u32,
    /// Grows with every change.
    pub version: u64,
    /// How many thoughts are on record for it.
    pub thoughts: u64,
    /// When it was created.
    pub created_at: String,
    /// When it was last changed.
    pub updated_at: String,
}

/// A task that would come to wait for itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Cycle(pub Vec<String>);

impl Cycle {
    /// The refusal that names it.
    pub fn refusal(self) -> Refusal {
        let message = format!("the tasks would wait for each other: {}", self.0.join(" → "));
        Refusal::new(code::CYCLE, message).field("cycle", self.0)
    }
}

/// Whether `task` may come to need `needs`: the way back to it, if there is one. `needs_of` tells
/// what a task needs today.
pub fn find_cycle<E>(
    task: &str,
    needs: &[String],
    mut needs_of: impl FnMut(&str) -> Result<Vec<String>, E>,
) -> Result<Option<Cycle>, E> {
    let mut came_from: HashMap<String, String> = HashMap::new();
    let mut seen: HashSet<String> = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for first in needs {
        if seen.insert(first.clone()) {
            came_from.insert(first.clone(), task.to_owned());
            open.push(first.clone());
        }
    }
    while let Some(here) = open.pop() {
        if here == task {
            return Ok(Some(Cycle(way_back(task, &came_from))));
        }
        for next in needs_of(&here)? {
            if seen.insert(next.clone()) {
                came_from.insert(next.clone(), here.clone());
                open.push(next);
            }
        }
    }
    Ok(None)
}

/// From `task` along the needs, back to `task`.
fn way_back(task: &str, came_from: &HashMap<String, String>) -> Vec<String> {
    let mut way = vec![task.to_owned()];
    let mut here = &came_from[task];
    while here != task {
        way.push(here.clone());
        here = &came_from[here];
    }
    way.push(task.to_owned());
    way.reverse();
    way
}

/// The refusal of what names a task that is not there.
pub fn not_found(id: &str) -> Refusal {
    let shown: String = id.chars().take(64).collect();
    Refusal::new(code::NOT_FOUND, format!("there is no task {shown}")).field("id", shown)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The whole machine on one page: from where, to where; `+` is another attempt.
    const STEPS: &str = "INIT: GATHER CANCELLED; GATHER: ANALYZE CANCELLED; ANALYZE: PLAN CANCELLED; \
        PLAN: APPLY CANCELLED; APPLY: VERIFY CANCELLED; VERIFY: DONE GATHER+ CANCELLED; DONE:; CANCELLED:";

    /// SU-7: every pair of states, against the page.
    #[test]
    fn only_the_steps_of_the_page_are_taken() {
        for line in STEPS.split(';') {
            let (from, steps) = line.trim().split_once(':').unwrap();
            let from = Status::parse(from).unwrap();
            for to in Status::ALL {
                let listed = steps.split_whitespace().find(|step| step.trim_end_matches('+') == to.name());
                let taken = step(from, to, 3, 1);
                match listed {
                    _ if from == to => assert_eq!(taken, Ok(Step { to, attempt: 3 }), "staying is no step"),
                    Some(step) => {
                        let attempt = 3 + u32::from(step.ends_with('+'));
                        assert_eq!(taken, Ok(Step { to, attempt }), "{from:?} to {to:?}");
                    }
                    None => {
                        assert_eq!(taken.unwrap_err().code, code::INVALID_TRANSITION, "{from:?} to {to:?}");
                    }
                }
            }
        }
    }

    /// SU-7: a refusal names where the task is, where it was to go and where it may.
    #[test]
    fn a_refusal_says_what_is_allowed() {
        let refusal = step(Status::Verify, Status::Plan, 1, 1).unwrap_err();
        assert_eq!(refusal.message, "a task cannot go from VERIFY to PLAN; allowed: DONE, GATHER, CANCELLED");
        assert_eq!(refusal.extra["allowed"], serde_json::json!(["DONE", "GATHER", "CANCELLED"]));
        let ended = step(Status::Done, Status::Gather, 1, 1).unwrap_err();
        assert_eq!(ended.message, "a task cannot go from DONE to GATHER; allowed: nothing: it has ended");
        let silent = step(Status::Verify, Status::Done, 1, 0).unwrap_err();
        assert_eq!(silent.code, code::WRITEBACK_REQUIRED);
        assert!(step(Status::Verify, Status::Cancelled, 1, 0).is_ok(), "giving up needs no reason");
    }

    /// SU-8: each name leads to one priority and back, and the order is the urgency.
    #[test]
    fn priorities_are_ordered() {
        let names = Priority::ALL.map(Priority::name);
        assert_eq!(names, ["critical", "high", "medium", "low"]);
        assert!(Priority::ALL.is_sorted());
        for priority in Priority::ALL {
            assert_eq!(Priority::of_rank(priority.rank()), Some(priority));
        }
        assert_eq!(Priority::of_rank(4), None);
    }

    proptest! {
        /// SU-7: however one walks, INIT is never entered again, an end is an end, and the attempts are the returns.
        #[test]
        fn random_walks_stay_on_the_page(asks in prop::collection::vec((0..8_usize, 0..2_u64), 0..60)) {
            let (mut here, mut attempt, mut returns) = (Status::Init, 1, 0);
            for (to, thoughts) in asks {
                let to = Status::ALL[to];
                let allowed = here == to
                    || (here.next().contains(&to) && (to != Status::Done || thoughts > 0));
                let taken = step(here, to, attempt, thoughts);
                prop_assert_eq!(taken.is_ok(), allowed);
                if let Ok(step) = taken {
                    prop_assert!(!here.is_terminal() || step.to == here);
                    prop_assert!(step.to != Status::Init || here == Status::Init);
                    returns += u32::from(here == Status::Verify && step.to == Status::Gather);
                    (here, attempt) = (step.to, step.attempt);
                }
            }
            prop_assert_eq!(attempt, 1 + returns);
        }

        /// SU-8: a cycle is found if and only if the task can be reached, and what is named is one.
        #[test]
        fn a_cycle_is_named_by_its_own_edges(edges in prop::collection::vec((0..9_u8, 0..9_u8), 0..30), task in 0..9_u8, needs in prop::collection::vec(0..9_u8, 0..4)) {
            let name = |number: u8| number.to_string();
            let mut graph: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (from, to) in edges.iter().filter(|(from, _)| *from != task) {
                graph.entry(name(*from)).or_default().push(name(*to));
            }
            let needs: Vec<String> = needs.into_iter().map(name).collect();
            let needs_of = |of: &str| Ok::<_, ()>(graph.get(of).cloned().unwrap_or_default());
            let found = find_cycle(&name(task), &needs, needs_of).unwrap();
            let mut reached: HashSet<String> = needs.iter().cloned().collect();
            loop {
                let more: Vec<_> = reached.iter().filter_map(|of| graph.get(of)).flatten().cloned().collect();
                let before = reached.len();
                reached.extend(more);
                if reached.len() == before { break; }
            }
            prop_assert_eq!(found.is_some(), reached.contains(&name(task)));
            if let Some(Cycle(way)) = found {
                prop_assert_eq!((way.first(), way.last()), (Some(&name(task)), Some(&name(task))));
                prop_assert!(way.len() >= 2 && needs.contains(&way[1]));
                for pair in way[1..].windows(2) {
                    prop_assert!(graph[&pair[0]].contains(&pair[1]), "{:?} is no edge", pair);
                }
            }
        }
    }
}
