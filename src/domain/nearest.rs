//! "Did you mean": the known word that is nearest to an unknown one.

/// The nearest known word, if any is near enough to be a likely slip of the hand.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let slips_at_most = (length / 3).clamp(1, 3);
    // Counted first: comparing takes memory for every pair of letters, and a stranger may be megabytes.
    let is_near = |candidate: &&str| length.abs_diff(candidate.chars().count()) <= slips_at_most;
    known
        .into_iter()
        .filter(is_near)
        .map(|candidate| {
            (strsim::damerau_levenshtein(&word.to_lowercase(), &candidate.to_lowercase()), candidate)
        })
        .filter(|(slips, _)| *slips <= slips_at_most)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let known = ["toolsDenied", "toolsAllowed", "timeout", "env"];
        let check = |word: &str, expected: Option<&str>| assert_eq!(nearest(word, known), expected, "{word}");
        check("toolsDenyed", Some("toolsDenied"));
        check("TIMEOUT", Some("timeout"));
        check("evn", Some("env"));
        check("colour", None);
        check("", None);
        check(&"timeout".repeat(1 << 20), None); // A terabyte, if it were compared.
    }
}
