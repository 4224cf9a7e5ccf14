//! How much may be open.

use super::{
    mended::{Script, config, event, failed, found},
    *,
};

/// Rule 4.1: with as many events open as a checkpoint keeps, waiting for their next attempt and out of memory, nothing
/// more is taken in or asked for, and the engine says so; once some settle it goes on.
#[test]
fn rule_4_1_as_many_open_events_as_a_checkpoint_keeps_stop_reading() {
    const MOST: usize = 20;
    let unordered = |policy: Policy| Policy { run: Run::Executor { index: 0, ordered: false }, ..policy };
    let config = config(Budget::Times(100));
    let policies = config.policies.iter().cloned().map(unordered).collect();
    let mut script = Script::new(Config { policies, max_open: MOST, ..config }, ConsumerState::default(), None);
    script.page((1..=30).map(|position| event(position, "parallel", &position.to_string())).collect());
    while let Some(position) = script.running.keys().next().copied() {
        assert!(script.engine.too_many_open().is_none() || script.engine.frontier() <= Position::new(20));
        script.end(position.minor(), failed());
        if script.engine.counts().failed_attempts == 20 {
            break;
        }
    }
    assert_eq!(script.engine.too_many_open(), Some(MOST));
    assert_eq!(script.engine.frontier(), Position::new(20));
    let open = script.commits.iter().map(|commit| commit.opened.len() as i64 - commit.closed.len() as i64).sum::<i64>();
    assert!((1..=20).contains(&open), "{open} are stored as open");

    // They are tried again when due, and settle: the rest follows.
    for _ in 0..200 {
        script.pass(Duration::from_secs(40));
        while let Some(read) = script.out.reads.pop() {
            let Read::At(positions) = read else { unreachable!("{read:?}") };
            let events = positions.iter().map(|at| event(at.minor(), "parallel", &at.minor().to_string())).collect();
            script.engine.recovered(&positions, found(events), script.now);
            script.turn();
        }
        while let Some(position) = script.running.keys().next().copied() {
            script.end(position.minor(), Outcome::Handled);
        }
    }
    assert_eq!((script.engine.counts().handled, script.engine.too_many_open()), (30, None));
}
