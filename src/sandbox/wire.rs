//! What colibri and its helper say to each other, over a socket that is also the lifeline.
//!
//! Down go one request with its descriptors, then single letters. Up come reports, one JSON line each.
//! When either end is gone the other knows at once, however it went.

use std::collections::BTreeSet;
use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use crate::domain::end::End;

use super::policy::{Layer, Policy};

/// The name under which colibri's program starts as the helper.
pub(super) const HELPER_NAME: &str = "colibri-sandbox";

/// The only argument of colibri's program when it is the canary.
pub(super) const CANARY: &str = "colibri-sandbox-canary";

/// The longest report: a refusal with the machine's own words in it.
pub(super) const REPORT_BYTES_MAX: u64 = 64 << 10;

/// A control group in each hierarchy: the second version's, memory, processes.
pub(super) const GROUPS_MAX: usize = 3;

/// The group in a child's control group in which the child itself is.
pub(super) const INNER_GROUP: &str = "in";

/// The request, the child's stdin, a door, and the folders above its control groups.
pub(super) const DESCRIPTORS_MAX: usize = 3 + GROUPS_MAX;

/// A letter to the helper: ask the child to leave.
pub(super) const LEAVE: u8 = b'T';

/// What to start, and under what.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// Absolute: what is reached from an inherited folder would be reached around the view.
    pub(super) directory: OsString,
    pub(super) policy: Policy,
    /// Whether a door for a listening socket comes with it.
    pub(super) has_door: bool,
    /// The name of the control groups in the folders that come with it.
    pub(super) groups: Option<String>,
}

/// What the helper tells.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The program runs, without these layers, which were allowed to be missing.
    Started {
        /// Those layers.
        lacking: BTreeSet<Layer>,
    },
    /// It has ended, or never ran.
    Ended {
        /// How.
        end: End,
        /// Its status, as `wait` gives it.
        status: i32,
    },
}
