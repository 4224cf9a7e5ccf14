//! Who this process is, and whether another of this host is dead.

use evento_core::store::{Owner, ProcessIdentity};
#[cfg(target_os = "linux")]
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};
use uuid::Uuid;

/// An owner for claims of this process: another at each call, so that two starts in one process are told apart.
#[must_use]
pub(crate) fn this_process() -> Owner {
    let pid = std::process::id();
    let random = Uuid::now_v7().simple().to_string();
    let host = host_name().unwrap_or_else(|| "host".to_owned());
    Owner { name: format!("{host}:{pid}:{}", &random[16..]), process: identity(pid) }
}

/// Whether the process is surely dead: `false` where another host, boot or namespace would have to tell.
#[must_use]
pub(crate) fn is_dead(process: &ProcessIdentity) -> bool {
    if scope().as_deref() != Some(&process.scope) {
        return false;
    }
    match state(process.pid) {
        State::Gone => true,
        // A reused id belongs to a process that began at another time.
        State::Alive { started } => started != process.started,
        State::Unknown => false,
    }
}

enum State {
    Gone,
    Alive { started: u64 },
    Unknown,
}

fn identity(pid: u32) -> Option<ProcessIdentity> {
    let State::Alive { started } = state(pid) else { return None };
    Some(ProcessIdentity { scope: scope()?, pid, started })
}

#[cfg(target_os = "linux")]
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The boot and the process namespace: process ids mean the same only within one.
#[cfg(target_os = "linux")]
fn scope() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

#[cfg(target_os = "linux")]
fn state(pid: u32) -> State {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse_stat(&stat),
        // A process that ends between opening and reading answers ESRCH.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound || error.raw_os_error() == Some(3) => {
            without_entry(signal(pid))
        }
        Err(_) => State::Unknown,
    }
}

/// What a process is that `/proc` does not show: a mount with `hidepid` hides the living of other users, so only what a
/// signal would find tells.
#[cfg(target_os = "linux")]
fn without_entry(signal: Result<(), Errno>) -> State {
    match signal {
        Err(Errno::SRCH) => State::Gone,
        // It takes signals, or is somebody's who may not be sent any.
        Ok(()) | Err(_) => State::Unknown,
    }
}

/// What sending it a signal would answer; none is sent.
#[cfg(target_os = "linux")]
fn signal(pid: u32) -> Result<(), Errno> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::INVAL)?;
    test_kill_process(pid)
}

/// Field 3 is the state, field 22 the start in clock ticks since boot; the name in field 2 may hold anything.
#[cfg(target_os = "linux")]
fn parse_stat(stat: &str) -> State {
    let Some((_, after_name)) = stat.rsplit_once(") ") else { return State::Unknown };
    let mut fields = after_name.split(' ');
    // A zombie has ended; only its parent has not asked yet.
    if matches!(fields.next(), Some("Z" | "X" | "x")) {
        return State::Gone;
    }
    match fields.nth(18).and_then(|field| field.parse().ok()) {
        Some(started) => State::Alive { started },
        None => State::Unknown,
    }
}

#[cfg(not(target_os = "linux"))]
fn host_name() -> Option<String> {
    std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty())
}

#[cfg(not(target_os = "linux"))]
fn scope() -> Option<String> {
    None
}

#[cfg(not(target_os = "linux"))]
fn state(_pid: u32) -> State {
    State::Unknown
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{
        process::{Command, Stdio},
        time::Duration,
    };

    use evento_core::{
        ConsumerKey, Kind, Segment, StartAt,
        store::{ClaimOutcome, ClaimRequest, OpenStore, Registration},
    };

    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn this_process_is_alive_and_every_start_has_a_name_of_its_own() {
        let (first, second) = (this_process(), this_process());
        assert_ne!(first.name, second.name);
        assert!(!is_dead(first.process.as_ref().expect("linux tells")));
    }

    #[test]
    fn a_reused_process_id_is_another_process() {
        let mut process = this_process().process.expect("linux tells");
        process.started += 1;
        assert!(is_dead(&process));
    }

    #[test]
    fn a_process_of_another_boot_or_namespace_is_not_judged() {
        let mut process = this_process().process.expect("linux tells");
        process.scope.push('x');
        process.started += 1;
        assert!(!is_dead(&process));
    }

    #[test]
    fn a_killed_child_is_dead_even_before_its_parent_asks() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("spawns");
        let process = identity(child.id()).expect("alive");
        assert!(!is_dead(&process));
        child.kill().expect("kills");
        let began = std::time::Instant::now();
        while !is_dead(&process) {
            assert!(began.elapsed().as_secs() < 10, "a zombie counts as dead");
            std::thread::yield_now();
        }
        child.wait().expect("waits");
        assert!(is_dead(&process));
    }

    #[test]
    fn a_process_that_proc_hides_is_dead_only_if_no_signal_would_find_it() {
        assert!(matches!(without_entry(Err(Errno::SRCH)), State::Gone));
        for found in [Ok(()), Err(Errno::PERM), Err(Errno::INVAL)] {
            assert!(matches!(without_entry(found), State::Unknown), "{found:?}");
        }
    }

    #[test]
    fn a_signal_finds_the_living_and_misses_the_dead() {
        assert_eq!(signal(std::process::id()), Ok(()));
        let mut child = Command::new("true").spawn().expect("spawns");
        child.wait().expect("waits");
        assert_eq!(signal(child.id()), Err(Errno::SRCH));
        assert_eq!(signal(0), Err(Errno::INVAL), "0 would be this group of processes");
    }

    /// On memory and on SQLite, a claim of a dead process of this host is taken at once, and uncleanly.
    #[tokio::test]
    async fn a_killed_processs_claim_is_taken_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let descriptions: &[Box<dyn OpenStore>] = &[
            Box::new(MemoryStore::new()),
            #[cfg(feature = "sqlite")]
            Box::new(crate::store::SqliteStore::at(folder.path().join("shop.db"))),
        ];
        for description in descriptions {
            let store = description.open().await.expect("opens");
            let consumer = ConsumerKey {
                bundle: "shop".to_owned(),
                kind: Kind::Projector,
                name: "orders".to_owned(),
                version: 1,
                context: "default".to_owned(),
            };
            let names = vec!["placed".to_owned()];
            let registration =
                Registration { consumer: consumer.clone(), start: StartAt::Beginning, names: names.clone() };
            store.register(vec![registration]).await.expect("registers");
            let claim = |owner: &Owner, names: &[String]| {
                store.claim(ClaimRequest {
                    consumer: consumer.clone(),
                    segment: Segment::WHOLE,
                    owner: owner.clone(),
                    time_to_live: Duration::from_secs(600),
                    names: names.to_vec(),
                })
            };
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("spawns");
            let (own, childs) = (this_process(), Owner { name: "child".to_owned(), process: identity(child.id()) });
            let other = Owner { name: "other".to_owned(), process: identity(child.id()) };
            claim(&childs, &names).await.expect("answers");
            let outcome = claim(&other, &names).await.expect("answers");
            assert!(matches!(outcome, ClaimOutcome::Held { .. }), "{outcome:?}");
            let outcome = claim(&own, &[]).await.expect("answers");
            assert!(matches!(outcome, ClaimOutcome::Held { .. }), "it lives: {outcome:?}");
            child.kill().expect("kills");
            child.wait().expect("waits");
            // Nor does anybody stand back for a dead process that waited.
            let outcome = claim(&own, &[]).await.expect("answers");
            assert!(matches!(outcome, ClaimOutcome::Taken { clean: false, .. }), "it is dead: {outcome:?}");
            store.close().await;
        }
        folder.close().expect("nothing is left open in it");
    }

    #[test]
    fn a_process_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let line = "7 (a) b) (c) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert!(matches!(parse_stat(line), State::Alive { started: 4242 }));
    }
}
