//! A layer that is missing: refused by name, with a remedy, or done without where that was allowed.

use colibri::domain::end::End;
use colibri::sandbox::{Layer, Policy, start_under};

use super::support::Villain;

/// SB-3, T12 of the abuse list: for every layer, the program never ran, and the layer and what to do
/// are named.
#[tokio::test]
async fn a_missing_layer_refuses_the_program() {
    let villain = Villain::new();
    let file = villain.folder.join("it-ran");
    let touch = colibri::sandbox::Spec {
        program: "touch".into(),
        arguments: vec![file.clone().into()],
        ..villain.spec(&[])
    };
    for missing in Layer::ALL {
        let levels = [Policy::default(), Policy::strict()].into_iter();
        for policy in levels.filter(|policy| policy.needs().contains(&missing)) {
            let policy = Policy { pretend_missing: [missing].into(), ..policy };
            let child = start_under(&touch, &policy).unwrap();
            let end = child.life.how_it_ended().await;
            let End::Policy { layer, remedy, .. } = &end else { panic!("{missing:?}: {end}") };
            assert_eq!(layer, missing.name());
            assert!(remedy.contains("allowDegraded"), "{remedy}");
            assert!(child.life.last_words().contains(&format!("`{}` is missing", missing.name())));
            assert_eq!(child.life.started().await, None);
            assert!(!file.exists(), "{missing:?}: it ran");
            assert_eq!(child.life.ended().await.code(), Some(126));
        }
    }
    villain.assert_gone();
}

/// SB-3, T12 of the abuse list: a layer that may be missing is, and that is told; every other holds.
#[tokio::test]
async fn a_layer_that_may_be_missing_is_told() {
    let villain = Villain::new();
    for missing in Layer::ALL {
        let lacking = std::collections::BTreeSet::from([missing]);
        let policy =
            Policy { pretend_missing: [missing].into(), allow_degraded: lacking.clone(), ..Policy::strict() };
        let child = villain.start(&["sleep"], &policy);
        assert_eq!(child.life.started().await, Some(lacking), "{missing:?}: {}", child.life.last_words());
        child.life.end().await;
    }
    villain.assert_gone();
}

/// The same from the command line, for people.
#[test]
fn a_missing_layer_is_told_to_people() {
    let villain = Villain::new();
    let refused = villain.run(&["--pretend-missing", "namespace"], &["leave"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(4));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("`namespace` is missing") && said.contains("allowDegraded"), "{said}");
    let options = ["--pretend-missing", "namespace", "--allow-degraded", "namespace"];
    let degraded = villain.run(&options, &["leave"]).output().unwrap();
    assert_eq!(degraded.status.code(), Some(0));
    let said = String::from_utf8_lossy(&degraded.stderr);
    assert!(said.contains("running without namespace"), "{said}");
    let unknown = villain.run(&["--allow-degraded", "nothing"], &["leave"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("the layers are namespace"));
}

/// A machine that lacks everything, as a sandbox in a sandbox does: the doctor says so, and what to do.
#[test]
fn the_doctor_sends_a_canary_through_every_layer() {
    let villain = Villain::new();
    let colibri = env!("CARGO_BIN_EXE_colibri");
    let findings = |text: &[u8]| -> Vec<(bool, String)> {
        let report: serde_json::Value = serde_json::from_slice(text).unwrap();
        let checks = report["checks"].as_array().unwrap().iter().filter(|check| check["name"] == "sandbox");
        let of = |check: &serde_json::Value| {
            (check["well"].as_bool().unwrap(), check["finding"].as_str().unwrap().to_owned())
        };
        checks.map(of).collect()
    };
    let mut doctor = std::process::Command::new(colibri);
    let here = doctor.args(["doctor", "--json"]).env("HOME", &villain.folder).output().unwrap();
    let here = findings(&here.stdout);
    let all = format!("holding: {}", Layer::ALL.map(Layer::name).join(", "));
    assert_eq!(here[0], (true, all), "on this machine every layer holds");
    assert!(here[1].0 && here[1].1.starts_with("limits: watched") && here.len() == 2, "{here:?}");
    let folder = std::path::Path::new(colibri).parent().unwrap();
    let mut nested = std::process::Command::new(colibri);
    nested.args(["run", "--sandbox", "strict", "--allow-read"]).arg(folder).arg("--");
    let nested = nested.args([colibri, "doctor", "--json"]).env("HOME", &villain.folder).output().unwrap();
    assert_eq!(nested.status.code(), Some(8), "{}", String::from_utf8_lossy(&nested.stderr));
    let nested = findings(&nested.stdout);
    let (well, finding) = nested.iter().find(|(well, _)| !well).unwrap();
    assert!(!well && finding.starts_with("namespace is missing") && finding.contains("userns"), "{finding}");
}
