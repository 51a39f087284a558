//! A server with a tool of its own, on stdin and stdout.
//!
//! ```console
//! $ cargo run --example custom_tool
//! ```

use std::collections::BTreeSet;
use std::error::Error;

use colibri::{Context, Server, ToolConfig, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The input schema derives from this; doc comments are what models read.
#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The text whose words are counted.
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Count {
    words: usize,
    /// How many of them are different.
    distinct: usize,
}

async fn word_count(arguments: Arguments, _: Context) -> Result<Count, ToolError> {
    let words: Vec<&str> = arguments.text.split_whitespace().collect();
    Ok(Count { words: words.len(), distinct: words.iter().collect::<BTreeSet<_>>().len() })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut server = Server::builder().build();
    let config = ToolConfig {
        title: "Count words".into(),
        description: "Counts the words of a text.".into(),
        ..ToolConfig::default()
    };
    server.register("word_count", config, word_count)?;
    server.start().await?;
    server.wait().await;
    Ok(())
}
