//! The protocol revisions, as data.

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// With `initialize`, once.
    Legacy,
    /// With nothing: each request says in its `_meta` what it speaks.
    Modern,
}

/// One published revision of MCP, and what a server may say in it.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a table of yes and no, one row per revision")]
pub struct Revision {
    /// Its name.
    pub date: &'static str,
    /// How a connection begins.
    pub family: Family,
    /// Several messages in one JSON array.
    pub batching: bool,
    /// A tool tells of its effects.
    pub annotations: bool,
    /// Tools and servers have a name for people.
    pub titles: bool,
    /// Tools have an output schema, results a structured content.
    pub structured: bool,
    /// `ping`.
    pub ping: bool,
    /// `logging/setLevel`.
    pub set_level: bool,
    /// Every result says what kind of result it is, and who gave it.
    pub result_type: bool,
    /// Lists say how long they may be kept.
    pub cache_hints: bool,
}

const FIRST: Revision = Revision {
    date: "2024-11-05",
    family: Family::Legacy,
    batching: false,
    annotations: false,
    titles: false,
    structured: false,
    ping: true,
    set_level: true,
    result_type: false,
    cache_hints: false,
};

const BATCHING: Revision = Revision { date: "2025-03-26", batching: true, annotations: true, ..FIRST };

const STRUCTURED: Revision =
    Revision { date: "2025-06-18", annotations: true, titles: true, structured: true, ..FIRST };

/// The newest revision that begins with `initialize`.
pub const LEGACY: Revision = Revision { date: "2025-11-25", ..STRUCTURED };

/// The revision without sessions.
pub const MODERN: Revision = Revision {
    date: "2026-07-28",
    family: Family::Modern,
    ping: false,
    set_level: false,
    result_type: true,
    cache_hints: true,
    ..LEGACY
};

/// All of them, oldest first.
pub static REVISIONS: [Revision; 5] = [FIRST, BATCHING, STRUCTURED, LEGACY, MODERN];

/// The revision of that date and family.
pub fn known(date: &str, family: Family) -> Option<&'static Revision> {
    REVISIONS.iter().find(|revision| revision.date == date && revision.family == family)
}

/// What `initialize` is answered: the revision asked for, or else the newest that begins this way;
/// the client then decides whether it can live with it.
pub fn negotiate(requested: &str) -> &'static Revision {
    known(requested, Family::Legacy).unwrap_or(&REVISIONS[3])
}

/// The revision without sessions, where a reference is wanted.
pub fn modern() -> &'static Revision {
    &REVISIONS[4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialize_is_answered_with_what_was_asked_or_the_newest_that_begins_so() {
        for (requested, given) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-03-26", "2025-03-26"),
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
            ("2023-01-01", "2025-11-25"),
            ("", "2025-11-25"),
        ] {
            assert_eq!(negotiate(requested).date, given, "{requested}");
        }
    }

    #[test]
    fn each_revision_is_found_in_its_family_only() {
        assert_eq!(known("2026-07-28", Family::Modern), Some(&MODERN));
        assert_eq!(modern(), &MODERN);
        assert_eq!(known("2026-07-28", Family::Legacy), None);
        assert_eq!(known("2025-11-25", Family::Modern), None);
        assert!(REVISIONS.is_sorted_by_key(|revision| revision.date));
    }
}
