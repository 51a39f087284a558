//! `skill_list`: the skills there are, without their bodies.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::log::visible;
use crate::domain::skill::{Diagnostic, Source};

use super::super::{Context, RegisterError, Registry, ToolConfig, ToolError};
use super::Skills;
use super::scan::{Found, Scan};

/// Skills on a page, if nobody says.
const PAGE: u32 = 50;

/// On a page; the whole number is told.
const DIAGNOSTICS_MAX: usize = 50;

const LIST: ToolConfig = ToolConfig {
    title: Cow::Borrowed("List skills"),
    description: Cow::Borrowed(
        "Lists the skills found in the project's, the configured and the user's folders, by name, a page at a time, each with its path: read \
         SKILL.md there before using one. What could not be used is in diagnostics.",
    ),
    ..ToolConfig::NONE
};

pub(super) fn register(registry: &mut Registry, skills: &Skills) -> Result<(), RegisterError> {
    let skills = skills.clone();
    registry.register("skill_list", LIST, move |ask: List, context| list(skills.clone(), ask, context))
}

#[derive(Deserialize, JsonSchema)]
struct List {
    /// Only those with this text in their name or description, in whatever case.
    #[serde(default)]
    #[schemars(length(min = 1, max = 256))]
    search: Option<String>,
    /// Only those that name exactly this capability.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    capability: Option<String>,
    /// At most this many; 50 if absent.
    #[serde(default)]
    #[schemars(range(min = 1, max = 200))]
    limit: Option<u32>,
    /// Where the page before ended: its `next_cursor`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 1024))]
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Listing {
    skills: Vec<Listed>,
    /// Give it as `cursor` to go on; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// What could not be used, and what hides what. On the first page only.
    diagnostics: Vec<Diagnostic>,
    /// How many more diagnostics there are.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(default)]
    diagnostics_left_off: usize,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Listed {
    name: String,
    /// What it does and when to use it.
    description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    capabilities: Vec<String>,
    /// Its folder.
    path: String,
    source: Source,
    /// SHA-256 over the digests of all its files.
    digest: String,
    /// What is not as it should be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    warnings: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

async fn list(skills: Skills, ask: List, context: Context) -> Result<Listing, ToolError> {
    let Scan { skills: found, mut diagnostics, left_off } = skills.look(&context).await?;
    let limit = ask.limit.unwrap_or(PAGE) as usize;
    let search = ask.search.map(|text| text.to_lowercase());
    let is_wanted = |found: &&Found| {
        let holds = |text: &str| search.as_ref().is_none_or(|wanted| text.to_lowercase().contains(wanted));
        let is_able = |wanted: &String| found.skill.capabilities.contains(wanted);
        let is_after = |cursor: &String| found.skill.name > *cursor;
        (holds(&found.skill.name) || holds(&found.skill.description))
            && ask.capability.as_ref().is_none_or(is_able)
            && ask.cursor.as_ref().is_none_or(is_after)
    };
    let mut page: Vec<&Found> = found.iter().filter(is_wanted).take(limit + 1).collect();
    let is_more = page.len() > limit;
    page.truncate(limit);
    let next_cursor = page.last().filter(|_| is_more).map(|last| last.skill.name.clone());
    let told = if ask.cursor.is_none() { DIAGNOSTICS_MAX } else { 0 };
    let diagnostics_left_off = left_off + diagnostics.len().saturating_sub(told);
    diagnostics.truncate(told);
    Ok(Listing {
        skills: page.into_iter().map(listed).collect(),
        next_cursor,
        diagnostics,
        diagnostics_left_off: if told == 0 { 0 } else { diagnostics_left_off },
    })
}

pub(super) fn listed(found: &Found) -> Listed {
    let skill = &found.skill;
    Listed {
        name: skill.name.clone(),
        description: skill.description.clone(),
        version: skill.version.clone(),
        capabilities: skill.capabilities.clone(),
        path: visible(&found.folder.to_string_lossy()),
        source: found.source,
        digest: found.digest.to_string(),
        warnings: found.warnings.clone(),
    }
}
