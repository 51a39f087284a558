//! One native tool, whole: a story counts its lines.

use colibri::tools::{Context, RegisterError, Registry, ToolConfig, ToolError};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Divide {
    dividend: i64,
    divisor: i64,
}

async fn divide(asked: Divide, _: Context) -> Result<Option<i64>, ToolError> {
    Ok(asked.dividend.checked_div(asked.divisor))
}

pub(super) fn register(registry: &mut Registry) -> Result<(), RegisterError> {
    let description = "Divides; null if that cannot be done.".into();
    registry.register("divide", ToolConfig { description, ..ToolConfig::default() }, divide)
}
