//! What several stories share.

pub(crate) mod library;

/// Where a child writes what it covered, when that is measured. An environment that is cleared for a
/// story keeps this one variable.
pub(crate) fn measured() -> Option<(&'static str, std::ffi::OsString)> {
    const VARIABLE: &str = "LLVM_PROFILE_FILE";
    std::env::var_os(VARIABLE).map(|file| (VARIABLE, file))
}
