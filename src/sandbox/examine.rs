//! What this machine can hold: found out by sending a canary through every layer.

use crate::domain::end::End;

use super::policy::{Layer, Policy};
use super::wire::CANARY;
use super::{OWN_PROGRAM, Spec, helper, start_under};

/// Whether each layer holds here, and if not, why.
pub async fn examine() -> Vec<(Layer, Result<(), String>)> {
    let every = Policy { allow_degraded: Layer::ALL.into(), ..Policy::strict() };
    let came_back = send(&every).await;
    let mut found = Vec::new();
    for layer in Layer::ALL {
        let verdict = match &came_back {
            Ok(code) if helper::canary::found(*code, layer) => Ok(()),
            Ok(_) => Err(why(layer).await),
            Err(why) => Err(why.clone()),
        };
        found.push((layer, verdict));
    }
    found
}

/// Insists on one layer, to hear what the machine says about it.
async fn why(layer: Layer) -> String {
    let mut others = std::collections::BTreeSet::from(Layer::ALL);
    others.remove(&layer);
    match send(&Policy { allow_degraded: others, ..Policy::strict() }).await {
        Ok(_) => "it was put on, and did not hold".to_owned(),
        Err(why) => why,
    }
}

async fn send(policy: &Policy) -> Result<i32, String> {
    // The helper's own program, which is also the canary's; a sandbox always has it.
    let program = OWN_PROGRAM.into();
    let spec = Spec {
        program,
        arguments: vec![CANARY.into()],
        environment: Vec::new(),
        directory: Some("/".into()),
    };
    let child = start_under(&spec, policy).map_err(|error| error.to_string())?;
    match child.life.how_it_ended().await {
        End::Exited { code } => Ok(code),
        End::Policy { cause, .. } => Err(cause),
        other => Err(other.to_string()),
    }
}
