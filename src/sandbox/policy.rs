//! What a child may touch and use, as plain data; and which layers hold it.
//!
//! Owns: levels, limits, layers, and which level needs which layer.
//! Must not know: how a layer is made.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use super::egress::{Host, Hosts};

/// How much of the sandbox must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// Nothing is taken from the child; it still ends with colibri, whatever it does.
    Off,
    /// Limits hold, colibri's own files are out of reach; the rest as asked for.
    #[default]
    Standard,
    /// Every layer, no network unless it is named, nothing writable but what is named and a private temporary folder.
    Strict,
}

/// What a child may touch and use. Paths are absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// What to start from.
    pub level: Level,
    /// What it may use, together with everything it starts.
    pub limits: Limits,
    /// Which files it may touch.
    pub files: Files,
    /// Whether it has a network; by default all of it, under [`Level::Strict`] none.
    pub network: Option<Network>,
    /// Layers that this machine may lack; any other must hold.
    pub allow_degraded: BTreeSet<Layer>,
    /// Layers to act as if this machine lacked them: a missing layer can be tried before it is met.
    pub pretend_missing: BTreeSet<Layer>,
}

impl Policy {
    /// Nothing is taken from the child.
    pub fn off() -> Self {
        Self { level: Level::Off, limits: Limits::none(), ..Self::default() }
    }

    /// Every layer.
    pub fn strict() -> Self {
        Self { level: Level::Strict, ..Self::default() }
    }

    /// Which network the child has.
    pub fn network(&self) -> &Network {
        let by_default = if self.level == Level::Strict { &Network::None } else { &Network::Full };
        self.network.as_ref().unwrap_or(by_default)
    }

    /// The layers that must hold.
    pub fn needs(&self) -> BTreeSet<Layer> {
        match self.level {
            Level::Off => BTreeSet::new(),
            // Who writes that a program may use the network has it, and every other layer.
            Level::Strict => {
                let is_needed = |layer: &Layer| *layer != Layer::Network || *self.network() != Network::Full;
                Layer::ALL.into_iter().filter(is_needed).collect()
            }
            Level::Standard => {
                let mut layers = BTreeSet::from([Layer::Namespace, Layer::Privileges]);
                if !self.files.allow_read.is_empty() || !self.files.allow_write.is_empty() {
                    layers.insert(Layer::Landlock);
                }
                if *self.network() != Network::Full {
                    layers.extend([Layer::Network, Layer::Seccomp]);
                }
                layers
            }
        }
    }
}

/// What a child may use. Absent means as much as it likes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Resident memory of the whole tree.
    pub memory_bytes: Option<u64>,
    /// Processes and threads of the whole tree.
    pub processes: Option<u32>,
    /// Processor time of the whole tree.
    pub cpu: Option<Duration>,
    /// How long it may run.
    pub wall: Option<Duration>,
    /// The longest file it may write.
    pub file_bytes: Option<u64>,
    /// Open files, per process.
    pub open_files: Option<u32>,
    /// What it may say without ending a line. Whoever reads its stdout holds it to this.
    pub output_bytes: Option<u64>,
}

impl Limits {
    /// No limit at all.
    pub const fn none() -> Self {
        Self {
            memory_bytes: None,
            processes: None,
            cpu: None,
            wall: None,
            file_bytes: None,
            open_files: None,
            output_bytes: None,
        }
    }
}

/// What a long-lived server gets. A cold `npx` peaks above 200 MB, and `uvx` unpacks large files.
impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: Some(1 << 30),
            processes: Some(512),
            file_bytes: Some(1 << 30),
            open_files: Some(1024),
            output_bytes: Some(64 << 20),
            ..Self::none()
        }
    }
}

/// Which files a child may touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// Out of reach, though it may lie in a folder that is not: colibri's own files, and `denyRead`.
    pub hidden: Vec<OsString>,
    /// To be read but not written, though it may lie in a folder that can be.
    pub read_only: Vec<OsString>,
    /// If any is named, it may read these and the system's programs and libraries alone.
    pub allow_read: Vec<OsString>,
    /// If any is named, it may write these and temporary files alone.
    pub allow_write: Vec<OsString>,
}

/// Whether a child has a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// No host, no other machine's socket, and no socket of this one.
    None,
    /// These hosts, through a proxy that colibri runs; who does not use it reaches nobody. No socket of this
    /// machine.
    Hosts(Hosts),
    /// What the machine has.
    Full,
}

/// A layer of the sandbox that a machine may lack. What every machine has is no layer here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Layer {
    /// Namespaces of its own: what the child starts cannot leave them and dies with them, and some files
    /// are covered. The two rest on each other, so that they are one layer.
    Namespace,
    /// No new privileges, no capabilities.
    Privileges,
    /// Lists of what may be read and written.
    Landlock,
    /// A network of its own, with nobody in it.
    Network,
    /// System calls that a server has no use for are refused.
    Seccomp,
}

impl Layer {
    /// All of them, in the order in which they are put on.
    pub const ALL: [Self; 5] =
        [Self::Namespace, Self::Network, Self::Privileges, Self::Landlock, Self::Seccomp];

    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Privileges => "privileges",
            Self::Landlock => "landlock",
            Self::Network => "network",
            Self::Seccomp => "seccomp",
        }
    }

    /// The layer of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.name() == name)
    }

    /// What to do where it is missing.
    pub fn remedy(self) -> String {
        let how = match self {
            Self::Namespace | Self::Network => {
                "let this user make user namespaces (sysctl kernel.unprivileged_userns_clone=1, \
                 kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces above 0; in a \
                 container, a profile that permits unshare and mount)"
            }
            Self::Landlock => "use Linux 6.2 or later with `landlock` in the lsm= list",
            Self::Seccomp | Self::Privileges => "use a Linux kernel built with seccomp filters",
        };
        format!("{how}, or write \"{}\" into the server's sandbox.allowDegraded", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_found_by_its_name() {
        for layer in Layer::ALL {
            assert_eq!(Layer::named(layer.name()), Some(layer));
            assert_eq!(serde_json::to_value(layer).unwrap(), layer.name());
        }
        assert_eq!(Layer::named("nothing"), None);
    }

    #[test]
    fn levels_need_layers() {
        use Layer::{Landlock, Namespace, Network as Net, Privileges, Seccomp};
        let check = |policy: Policy, layers: &[Layer]| {
            assert_eq!(policy.needs(), layers.iter().copied().collect(), "{policy:?}");
        };
        check(Policy::off(), &[]);
        check(Policy::strict(), &Layer::ALL);
        check(Policy::default(), &[Namespace, Privileges]);
        let written = Files { allow_write: vec!["/w".into()], ..Files::default() };
        check(Policy { files: written, ..Policy::default() }, &[Namespace, Privileges, Landlock]);
        let alone = Policy { network: Some(Network::None), ..Policy::default() };
        check(alone, &[Namespace, Privileges, Net, Seccomp]);
        let hosts = Network::Hosts(Hosts::allowing(&["example.com"]).unwrap());
        let some = Policy { network: Some(hosts), ..Policy::default() };
        check(some, &[Namespace, Privileges, Net, Seccomp]);
    }
}
