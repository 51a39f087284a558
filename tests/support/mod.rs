//! What several stories share.

pub(crate) mod library;
pub(crate) mod terminal;

/// How long something may take that takes a moment.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// colibri's own tools, in the order in which they are listed.
pub(crate) const NATIVE_TOOLS: [&str; 14] = [
    "audit_session_start",
    "audit_verify_chain",
    "merkle_finalize",
    "merkle_root",
    "server_health",
    "server_ping",
    "skill_list",
    "task_create",
    "task_get",
    "task_list",
    "task_next_actions",
    "task_update",
    "thought_record",
    "thought_record_list",
];

/// Waits for something in the real world, and says what has not come true.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} has not come true");
        std::thread::yield_now();
    }
}

/// Where a child writes what it covered, when that is measured. An environment that is cleared for a
/// story keeps this one variable.
pub(crate) fn measured() -> Option<(&'static str, std::ffi::OsString)> {
    const VARIABLE: &str = "LLVM_PROFILE_FILE";
    std::env::var_os(VARIABLE).map(|file| (VARIABLE, file))
}
