//! Power cuts, as far as one machine can play them: an ext4 on a loop device is shut down in the
//! middle of a storm, so that nothing that was not forced to disk survives; then it is mounted again.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use super::support::{Answer, Chance, Disk, Place, ids, in_own_mounts, program, rounds, tell};

/// `EXT4_IOC_SHUTDOWN` with `NOLOGFLUSH`: the file system stops here and now, its journal unwritten.
const CUT: &str = "import fcntl, os, struct, sys\n\
                   mount = os.open(sys.argv[1], os.O_RDONLY)\n\
                   print('armed', flush=True)\n\
                   sys.stdin.readline()\n\
                   fcntl.ioctl(mount, 0x8004587d, struct.pack('I', 2))\n";

/// SU-4, CO-6: under `admission` a power cut loses no enter record of a call that was answered.
#[test]
fn a_power_cut_loses_no_admission_that_was_answered() {
    in_own_mounts(concat!(module_path!(), "::a_power_cut_loses_no_admission_that_was_answered"), || {
        let lost = cut_again_and_again("admission", |outcome| ["ok", "unknown"].contains(&outcome));
        assert_eq!(lost, 0, "answered, but not on record");
    });
}

/// SU-4: under `strict` it loses no end of such a call either.
#[test]
fn a_power_cut_loses_no_strict_end_that_was_answered() {
    in_own_mounts(concat!(module_path!(), "::a_power_cut_loses_no_strict_end_that_was_answered"), || {
        let lost = cut_again_and_again("strict", |outcome| outcome == "ok");
        assert_eq!(lost, 0, "answered, but not on record");
    });
}

/// SU-4: the control. `relaxed` may lose what it answered, and does: so the stories above can fail.
/// It is never mistaken for tampering, since only what is on disk is signed.
#[test]
fn a_power_cut_under_relaxed_loses_answers_but_starts_clean() {
    in_own_mounts(
        concat!(module_path!(), "::a_power_cut_under_relaxed_loses_answers_but_starts_clean"),
        || {
            let lost = cut_again_and_again("relaxed", |_| true);
            assert!(lost > 0, "nothing was lost without fsync: these power cuts do not bite");
        },
    );
}

/// A few cuts on one disk, and many disks in the long run; gives how many answered calls are not on
/// record. `may_end` says how those that are may stand.
fn cut_again_and_again(durability: &str, may_end: impl Fn(&str) -> bool) -> usize {
    let mut chance = Chance::new(durability);
    (0..rounds(1, 20)).map(|_| cut_on_one_disk(durability, &mut chance, &may_end)).sum()
}

fn cut_on_one_disk(durability: &str, chance: &mut Chance, may_end: impl Fn(&str) -> bool) -> usize {
    let cuts = 5;
    let disk = Disk::new(64);
    let place = Place::new().durability(durability).with_database(&disk.mount.join("data/colibri.db"));
    let (mut answered, mut lost) = (BTreeSet::new(), 0);
    for round in 0..cuts {
        // The first cut comes early, to hit the making of the ledger now and then.
        let calls = if round == 0 { chance.below(3) } else { 20 + chance.below(400) };
        let of_round = storm_until_cut(&place, &disk, calls);
        disk.unmount();
        disk.mount();
        place.recover();
        place.verify();
        answered.extend(of_round);
        let actions = place.actions();
        let missing: Vec<String> = answered.difference(&ids(&actions)).cloned().collect();
        lost += missing.len();
        answered.retain(|call| !missing.contains(call));
        for action in actions.iter().filter(|action| answered.contains(&action.call)) {
            assert!(may_end(&action.outcome), "round {round}, after {calls} calls: {action:?}");
        }
        assert!(actions.iter().all(|action| action.outcome != "running"), "recovery closes every call");
    }
    tell(format_args!("{durability}: {} on record, {lost} lost in {cuts} cuts", answered.len()));
    lost
}

/// The calls that were answered before the lights went out. Those answered while the switch was being
/// pressed do not count: an fsync that is under way in that instant reports success for what the kernel
/// then drops, and in a real cut nobody would be left to hear it.
fn storm_until_cut(place: &Place, disk: &Disk, calls: u64) -> Vec<String> {
    let mut switch = arm(disk);
    let mut client = place.serve("storm");
    let answers = client.storm(16, calls);
    switch.stdin.take().unwrap().write_all(b"now\n").unwrap();
    while switch.try_wait().unwrap().is_none() {
        client.storm(16, 1);
    }
    assert!(switch.wait().unwrap().success(), "the file system was shut down");
    client.kill();
    answers.into_iter().filter(Answer::is_ok).map(|answer| answer.call).collect()
}

/// A process with its finger on the switch.
fn arm(disk: &Disk) -> Child {
    let mut command = program("python3");
    command.args(["-c", CUT]).arg(&disk.mount).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut switch = command
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run python3: {error}; install the Debian package python3"));
    let mut armed = String::new();
    BufReader::new(switch.stdout.take().unwrap()).read_line(&mut armed).unwrap();
    assert_eq!(armed, "armed\n");
    switch
}
