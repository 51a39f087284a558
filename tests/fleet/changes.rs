//! A fleet that changes while it runs: who stays, who goes, who joins whom, and who rests.

use colibri::domain::offer::Kind;
use colibri::domain::provider::Executed;
use colibri::fleet::error::Cause;
use colibri::fleet::roster::{Found, Kept, Plan, Registry, Start, Summary};
use tokio::time::Instant;

use super::support::{Opens, Scripted, fleet, identity, joining, member, planned, secs, until};

fn plan(members: Vec<colibri::fleet::roster::Member>) -> Plan {
    Plan { members, ..Plan::default() }
}

/// PR-6, PR-12: who is as it was stays connected, who changed is started anew, who is gone is not callable, and a call
/// under way on the old one comes to its end.
#[tokio::test(start_paused = true)]
async fn a_new_plan_loses_no_call() {
    let (same, old, gone) = (Scripted::new(&["a"]), Scripted::new(&["hang"]), Scripted::new(&["c"]));
    let (renewed, fresh) = (Scripted::new(&["b2"]), Scripted::new(&["d"]));
    let fleet = fleet(vec![member("same", &same), member("other", &old), member("gone", &gone)]);
    fleet.listed(3).await;
    let story = async {
        old.hung().await;
        let mut changed = member("other", &renewed);
        changed.identity = identity("another configuration");
        let next = plan(vec![member("same", &same), changed, member("fresh", &fresh)]);
        let summary = fleet.fleet.change(next).await;
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = Summary {
            added: names(&["fresh"]),
            changed: names(&["other"]),
            removed: names(&["gone"]),
            unchanged: 1,
        };
        assert_eq!(summary, expected);
        until(|| fleet.names() == ["fresh__d", "other__b2", "same__a"]).await;
        fleet.call("other__b2").await.expect("the new one is there");
        assert!(!old.is_ended(), "a call is under way on it");
        assert!(matches!(fleet.fleet.find("gone__c").await, Found::Stranger));
        old.answer_hung().await;
    };
    let (outcome, ()) = tokio::join!(fleet.call("other__hang"), story);
    outcome.expect("it came to its end on the old connection");
    assert_eq!(fleet.names(), ["fresh__d", "other__b2", "same__a"]);
    until(|| old.is_ended() && gone.is_ended()).await;
    assert_eq!((same.opened(), fresh.opened(), renewed.opened()), (1, 1, 1));
}

/// PR-2: a server whose new entry cannot be used goes on as it was.
#[tokio::test(start_paused = true)]
async fn a_broken_entry_ends_nothing() {
    let server = Scripted::new(&["a"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    let kept = ["s", "stranger"].map(|slug| Kept { slug: slug.into(), after: 0 }).to_vec();
    fleet.fleet.change(Plan { kept, ..Plan::default() }).await;
    fleet.call("s__a").await.expect("it goes on");
    assert_eq!((server.opened(), server.is_ended()), (1, false));
}

/// PR-12, PR-13: the order of the configuration decides who keeps a name and who is listed first; a new order alone is
/// a new catalog, and a server whose new entry cannot be used keeps its place in it. It used to count only together
/// with another change, and who was kept came last.
#[tokio::test(start_paused = true)]
async fn a_new_order_is_a_new_catalog() {
    let servers = ["a", "b", "c"].map(|name| (name, Scripted::new(&["t"])));
    for (name, server) in &servers {
        let offers = [r#"{"uri":"mem://same","name":"same"}"#.to_owned()];
        server.with(|menu| {
            menu.capabilities = serde_json::json!({ "resources": {} });
            menu.instructions = Some(format!("I am {name}."));
            menu.resources = offers.to_vec();
        });
    }
    let members = |order: &[usize]| -> Vec<_> {
        order.iter().map(|place| member(servers[*place].0, &servers[*place].1)).collect()
    };
    let fleet = fleet(members(&[0, 1, 2]));
    fleet.listed(3).await;
    let order = || {
        let catalog = fleet.fleet.catalog();
        let catalog = catalog.borrow();
        let listed = catalog.entries(Kind::Resources).iter().map(|entry| entry.server.to_string());
        let (owner, _) = catalog.resource("mem://same").expect("one has it");
        let told: Vec<usize> = ["a", "b", "c"]
            .iter()
            .map(|name| catalog.instructions().find(&format!("I am {name}.")).expect("it is told"))
            .collect();
        (listed.collect::<Vec<_>>().concat(), owner.to_string(), told)
    };
    let (listed, owner, told) = order();
    assert!((listed.as_str(), owner.as_str()) == ("abc", "a") && told.is_sorted());
    let mut changes = fleet.fleet.changes();
    let before = *changes.borrow_and_update();
    let summary = fleet.fleet.change(plan(members(&[2, 1, 0]))).await;
    assert_eq!(summary, Summary { unchanged: 3, ..Summary::default() });
    changes.changed().await.expect("the fleet is there");
    assert_eq!(changes.borrow().resources, before.resources + 1, "who lists resources is told");
    let (listed, owner, told) = order();
    assert!((listed.as_str(), owner.as_str()) == ("cba", "c") && told.is_sorted_by(|one, two| one > two));
    // The entry of `c` is broken now; it stays where it was.
    let kept = vec![Kept { slug: "c".into(), after: 1 }];
    fleet.fleet.change(Plan { members: members(&[1, 0]), kept, ..Plan::default() }).await;
    until(|| order().0 == "bca").await;
    assert!(servers.iter().all(|(_, server)| server.opened() == 1), "nobody was started again");
}

/// PR-6: two entries with one effective configuration use one connection, and it ends with the last of them;
/// `shared: false` has its own.
#[tokio::test(start_paused = true)]
async fn the_same_configuration_is_one_connection() {
    let (common, own) = (Scripted::new(&["a"]), Scripted::new(&["a"]));
    let joined = |name: &str, server: &Scripted| {
        let mut joined = member(name, server);
        joined.identity = identity("the same");
        joined
    };
    let alone = |name: &str| {
        let mut alone = joined(name, &own);
        alone.terms.shared = false;
        alone
    };
    let fleet = fleet(vec![joined("x", &common), joined("y", &common), alone("z")]);
    fleet.listed(3).await;
    for tool in ["x__a", "y__a", "z__a"] {
        fleet.call(tool).await.expect("it works");
    }
    assert_eq!((common.opened(), own.opened()), (1, 1));
    fleet.fleet.change(plan(vec![joined("y", &common), alone("z")])).await;
    fleet.listed(2).await;
    fleet.call("y__a").await.expect("the other one still has it");
    fleet.fleet.change(plan(vec![alone("z")])).await;
    until(|| common.is_ended()).await;
    assert_eq!(common.opened(), 1);
}

/// PR-6: two fleets with one registry use one connection for one configuration, and the last of them ends it.
#[tokio::test(start_paused = true)]
async fn a_registry_joins_two_fleets() {
    let (server, registry) = (Scripted::new(&["a"]), Registry::default());
    let (one, two) =
        (joining(vec![member("s", &server)], &registry), joining(vec![member("s", &server)], &registry));
    for fleet in [&one, &two] {
        fleet.listed(1).await;
        fleet.call("s__a").await.expect("it works");
    }
    one.fleet.close().await;
    two.fleet.close().await;
    assert_eq!((server.opened(), server.is_ended()), (1, true));
    let again = joining(vec![member("s", &server)], &registry);
    again.listed(1).await;
    assert_eq!(server.opened(), 2, "who comes after the end begins anew");
}

/// PR-6: at zero references a server is closed after `idleClose`, and started again by the next call. One that starts
/// with colibri is referred to by every client that is there; one that starts on use, by its calls.
#[tokio::test(start_paused = true)]
async fn nobody_uses_it_so_it_rests() {
    let (lazy, eager) = (Scripted::new(&["a"]), Scripted::new(&["b"]));
    let mut on_use = member("lazy", &lazy);
    on_use.terms.start = Start::OnUse;
    on_use.settings.idle_close = Some(secs(300));
    let mut with_us = member("eager", &eager);
    with_us.settings.idle_close = Some(secs(300));
    let fleet = planned(plan(vec![on_use, with_us]));
    let client = fleet.fleet.attach(colibri::domain::face::SessionId::default());
    fleet.listed(1).await;
    assert!(matches!(fleet.fleet.find("lazy__a").await, Found::Tool(_)));
    tokio::time::advance(secs(200)).await;
    fleet.call("lazy__a").await.expect("it is there");
    let used = Instant::now();
    fleet.state_is("lazy", "idle").await;
    assert_eq!(used.elapsed().as_secs(), 300);
    assert!(lazy.is_ended() && !eager.is_ended());
    assert_eq!(fleet.names(), ["eager__b", "lazy__a"], "what it offers is still known");
    fleet.call("lazy__a").await.expect("it is started again");
    assert_eq!((lazy.opened(), eager.opened()), (2, 1));
    drop(client);
    let left = Instant::now();
    fleet.state_is("eager", "idle").await;
    assert_eq!(left.elapsed().as_secs(), 300);
    assert!(eager.is_ended());
}

/// PR-15: after everything was closed, a new warm-up works.
#[tokio::test(start_paused = true)]
async fn a_new_fleet_of_the_same_servers() {
    let server = Scripted::new(&["a"]);
    for round in 1..=3 {
        let fleet = fleet(vec![member("s", &server)]);
        fleet.listed(1).await;
        fleet.call("s__a").await.expect("it works");
        fleet.fleet.close().await;
        assert_eq!((server.opened(), server.is_ended()), (round, true));
    }
}

/// PR-5: a second warm-up joins the first: a server that is being started is not started twice.
#[tokio::test(start_paused = true)]
async fn a_second_warm_up_joins_the_first() {
    let server = Scripted::new(&["a"]);
    server.plan(Opens::Hang);
    let mut slow = member("s", &server);
    slow.settings.connect_timeout = secs(2);
    let fleet = fleet(vec![slow]);
    let calls = tokio::join!(fleet.fleet.find("s__a"), fleet.fleet.find("s__a"));
    assert!(matches!(calls, (Found::Tool(_), Found::Tool(_))));
    assert_eq!(server.opened(), 2, "the attempt that hung, and the one that all waited for");
}

/// PR-7, PR-9: a server that refused who we are is asked again by a later call, and that very call finds it, once somebody
/// has signed in. It used to be told the old refusal, and only the one after it worked.
#[tokio::test(start_paused = true)]
async fn who_signed_in_is_let_in_by_the_next_call() {
    let server = Scripted::new(&["a"]);
    let refused = || Cause::Unauthorized("401".to_owned());
    server.plan(Opens::Fail(refused()));
    let fleet = fleet(vec![member("s", &server)]);
    fleet.state_is("s", "blocked").await;
    tokio::time::advance(secs(11)).await;
    assert!(matches!(fleet.fleet.find("s__a").await, Found::Tool(_)));
    fleet.call("s__a").await.expect("it is let in");
    assert_eq!(server.opened(), 2);
}

/// SB-11: a call that was on its way when its server was closed may have had its effect, and says so.
#[tokio::test(start_paused = true)]
async fn what_was_sent_is_not_called_unsent() {
    let server = Scripted::new(&["hang"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    let close = async {
        server.hung().await;
        fleet.fleet.close().await;
    };
    let (outcome, ()) = tokio::join!(fleet.call("s__hang"), close);
    let error = outcome.expect_err("it is closed").error;
    assert_eq!((error.code(), error.executed()), ("PROVIDER_UNAVAILABLE", Executed::Unknown));
}
