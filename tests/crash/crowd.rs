//! Many processes on one ledger: one log, and nobody touches what belongs to the living.

use colibri::domain::audit::AuditSink;
use colibri::store::LedgerSink;

use super::store::{arrival, ending, open};
use super::support::{Answer, Chance, Place, ids, tell};

/// Processes at once, and how many of them are killed on the way.
const CROWD: usize = 8;
const KILLED: usize = 2;

/// SU-4: eight processes call at once and two are killed; there is one log without a gap, every
/// answered call is on it, and a ninth closes what the dead left open and nothing else.
#[test]
fn eight_processes_share_one_log_and_two_of_them_die() {
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut chance = Chance::new("crowd");
    runtime.block_on(async {
        // One that lives, with a call under way: a store has its own presence, as a process has.
        let (living, closing) = open(&place);
        living.ready().await.unwrap();
        let (sink, long_call) = (LedgerSink::new(living.clone()), arrival("living"));
        sink.enter(&long_call).await.unwrap();

        // Until a kill has hit a call under way, so that there is something to close.
        let mut unknown = 0;
        for round in 0..10 {
            let answered = crowd(&place, round, &mut chance);
            let mut ninth = place.serve("ninth");
            assert!(ninth.call("server_ping").is_ok());
            let actions = place.actions();
            let missing = answered.iter().filter(|call| !ids(&actions).contains(*call)).count();
            assert_eq!(missing, 0, "of {} answered calls", answered.len());
            let running: Vec<_> = actions.iter().filter(|action| action.outcome == "running").collect();
            let is_alive = |client: &str| ["living", "ninth"].contains(&client);
            assert!(running.iter().all(|action| is_alive(&action.client)), "{running:?}");
            let long = actions.iter().find(|action| action.client == "living").unwrap();
            assert_eq!(long.outcome, "running", "the entry of the living is theirs");
            let closed = actions.iter().filter(|action| action.outcome == "unknown");
            assert!(closed.clone().all(|action| action.client.ends_with("dies")), "only the dead");
            unknown = closed.count();
            assert!(ninth.end().0.success());
            if unknown > 0 {
                tell(format_args!("crowd: {unknown} calls closed in round {round}"));
                break;
            }
        }
        assert!(unknown > 0, "no kill hit a call under way: the story tells nothing");
        sink.exit(&ending(&long_call)).await.unwrap();
        closing.close().await;
    });
    assert_eq!(place.actions_of("living")[0].outcome, "ok");
    place.verify();
}

/// All of them at once; gives the calls that were answered.
fn crowd(place: &Place, round: u64, chance: &mut Chance) -> Vec<String> {
    let storm = |number: usize, calls: u64| {
        let dies = number < KILLED;
        let name = format!("{round}.{number} {}", if dies { "dies" } else { "lives" });
        let mut client = place.serve(&name);
        let mut answers = client.storm(8, calls);
        if dies {
            answers.extend(client.kill());
        } else {
            let (status, rest, talk) = client.end();
            assert!(status.success(), "{name}: {talk}");
            answers.extend(rest);
        }
        assert!(answers.iter().all(Answer::is_ok), "{name}: {answers:?}");
        answers.into_iter().map(|answer| answer.call).collect::<Vec<_>>()
    };
    let calls: Vec<u64> = (0..CROWD).map(|_| 20 + chance.below(40)).collect();
    std::thread::scope(|scope| {
        let clients: Vec<_> = calls
            .iter()
            .enumerate()
            .map(|(number, calls)| scope.spawn(move || storm(number, *calls)))
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}
