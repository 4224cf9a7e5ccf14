//! House rules, held against the sources: who may name whom, and what may not be left lying about.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Files that are longer than the rest, and why they stay so.
const LONG: &[(&str, &str)] = &[
    ("evento-core/src/event.rs", "one short type after another: the words an event is spoken of with"),
    ("evento-runtime/src/engine.rs", "every input and output of the machine in one place; its parts are in `engine/`"),
    ("tests/src/conformance/checkpoint.rs", "a list of cases"),
    ("tests/src/conformance/log.rs", "a list of cases"),
];
const MOST_LINES: usize = 400;

struct Source {
    /// From the workspace's root.
    path: String,
    text: String,
}

impl Source {
    /// Without comments, and without the unit tests, which may name more.
    fn code(&self) -> String {
        let code = self.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
    }

    fn lies_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| {
            self.path
                .strip_prefix(place)
                .is_some_and(|rest| rest.is_empty() || place.ends_with('/') || rest.starts_with('/') || rest == ".rs")
        })
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn sources() -> Vec<Source> {
    let (root, mut found) = (root(), Vec::new());
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push(Source { path: path.strip_prefix(&root).unwrap().to_string_lossy().into_owned(), text });
            }
        }
    }
    assert!(found.len() > 50, "the sources are not where this test looks for them");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// What `text` names below `prefix`, groups included: `crate::{clock::Clock, store}` names `clock` and `store`.
fn named_below(text: &str, prefix: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (place, _) in text.match_indices(prefix) {
        if text[..place].ends_with(|before: char| before.is_alphanumeric() || matches!(before, '_' | '$' | ':')) {
            continue;
        }
        let rest = &text[place + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            named.insert(first_word(rest));
            continue;
        };
        let mut depth = 0;
        let mut ends = |character| {
            depth += i32::from(character == '{') - i32::from(character == '}');
            depth < 0
        };
        let group = &group[..group.find(&mut ends).unwrap_or(group.len())];
        let mut depth = 0;
        let parts = group.split(|character| {
            depth += i32::from(character == '{') - i32::from(character == '}');
            depth == 0 && character == ','
        });
        named.extend(parts.map(|part| first_word(part.trim_start())));
    }
    named.remove("");
    named
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
}

/// Whether `text` has `word` as a word of its own.
fn names(text: &str, word: &str) -> bool {
    let part_of_word = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(word).any(|(place, _)| {
        !text[..place].ends_with(part_of_word) && !text[place + word.len()..].starts_with(part_of_word)
    })
}

/// Every file in `places` that names one of `words`, as lines for a message.
fn offenders(places: &[&str], except: &[&str], words: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for source in sources().iter().filter(|source| source.lies_in(places) && !source.lies_in(except)) {
        let code = source.code();
        lines.extend(words.iter().filter(|word| names(&code, word)).map(|word| format!("{}: `{word}`", source.path)));
    }
    lines
}

/// Every name below `prefix` that a file in `places` may not name.
fn strangers(places: &[&str], prefix: &str, allowed: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for source in sources().iter().filter(|source| source.lies_in(places)) {
        let named = named_below(&source.code(), prefix);
        let strange = named.iter().filter(|name| !allowed.contains(&name.as_str()));
        lines.extend(strange.map(|name| format!("{}: `{prefix}{name}`", source.path)));
    }
    lines
}

const NOTHING: [String; 0] = [];

#[test]
fn the_reader_of_paths_sees_groups_and_what_stands_behind_them() {
    let text = "use crate::{\n    clock::Clock,\n    store::{decision, process},\n};\nuse other::{crate_x, y};\n\
                fn f() -> crate::config::Settings { $crate::plan!(), a }";
    assert_eq!(named_below(text, "crate::").into_iter().collect::<Vec<_>>(), ["clock", "config", "store"]);
    assert_eq!(named_below("use crate::store::decision::{self};", "crate::store::").len(), 1);
    assert!(names("use tokio::time", "tokio") && !names("use tokio_util::x", "tokio"));
}

#[test]
fn core_has_no_runtime_no_clock_and_no_io() {
    let core = &["evento-core/src"];
    assert_eq!(offenders(core, &[], &["tokio", "evento_runtime", "SystemTime", "Instant"]), NOTHING);
    let std = ["any", "borrow", "boxed", "collections", "error", "fmt", "future", "io", "pin", "str", "sync", "time"];
    assert_eq!(strangers(core, "std::", &std), NOTHING);
    assert_eq!(offenders(&["evento-macros/src"], &[], &["evento_runtime", "tokio"]), NOTHING);
}

#[test]
fn the_engine_knows_core_alone() {
    let engine = &["evento-runtime/src/engine"];
    assert_eq!(strangers(engine, "crate::", &["engine"]), NOTHING);
    let words = ["tokio", "tracing", "rusqlite", "SystemTime", "Instant", "thread", "rand", "uuid", "async", "await"];
    assert_eq!(offenders(engine, &["evento-runtime/src/engine/tests"], &words), NOTHING);
}

#[test]
fn stores_know_core_and_never_each_other() {
    assert_eq!(strangers(&["evento-runtime/src/store"], "crate::", &["store", "clock"]), NOTHING);
    for store in ["memory", "sqlite"] {
        let place = format!("evento-runtime/src/store/{store}");
        assert_eq!(strangers(&[&place], "crate::store::", &["decision", "process", store]), NOTHING);
    }
}

#[test]
fn no_import_in_the_runtime_runs_back_up() {
    let below_consumer = ["clock", "config", "fault", "interceptor", "executor", "engine", "store"];
    for lower in below_consumer {
        let place = format!("evento-runtime/src/{lower}");
        let named: Vec<_> = strangers(&[&place], "crate::", &below_consumer)
            .into_iter()
            .filter(|line| line.contains("`crate::bundle`") || line.contains("`crate::consumer`"))
            .collect();
        assert_eq!(named, NOTHING);
    }
    // A consumer is made from the bundle's description of it, and from nothing else of the bundle.
    assert_eq!(strangers(&["evento-runtime/src/consumer"], "crate::bundle::", &["ConsumerSpec"]), NOTHING);
    let ops = strangers(&["evento-runtime/src"], "crate::ops::", &[]);
    let outside: Vec<_> =
        ops.iter().filter(|line| !line.contains("/src/bundle") && !line.contains("/src/ops")).collect();
    assert!(outside.is_empty(), "only the bundle knows ops: {outside:?}");
}

#[test]
fn what_is_wrapped_is_named_in_one_place() {
    assert_eq!(offenders(&["evento-core", "evento-macros"], &[], &["rusqlite"]), NOTHING);
    assert_eq!(offenders(&["evento-runtime"], &["evento-runtime/src/store/sqlite"], &["rusqlite"]), NOTHING);
    assert_eq!(offenders(&["evento-runtime"], &[], &["inventory"]), NOTHING);
    let registry = &["evento-core/src/registry", "evento-core/src/__private"];
    assert_eq!(offenders(&["evento-core"], registry, &["inventory"]), NOTHING);
}

#[test]
fn nothing_is_ignored_or_left_to_do() {
    // Put together here, so that this file does not hold them.
    let forbidden = [("#[ign", "ore"), ("tod", "o!("), ("unimplement", "ed!(")].map(|(a, b)| format!("{a}{b}"));
    let mut found = Vec::new();
    for source in sources() {
        found
            .extend(forbidden.iter().filter(|it| source.text.contains(*it)).map(|it| format!("{}: {it}", source.path)));
    }
    assert_eq!(found, NOTHING);
}

#[test]
fn a_long_file_has_a_reason() {
    let long: Vec<_> = sources().into_iter().filter(|source| source.text.lines().count() > MOST_LINES).collect();
    let known = |path: &str| LONG.iter().any(|(known, _)| *known == path);
    let without: Vec<_> = long.iter().map(|it| &it.path).filter(|path| !known(path)).collect();
    assert!(without.is_empty(), "over {MOST_LINES} lines: look for a seam, or name the reason in `LONG`: {without:?}");
    let stale: Vec<_> = LONG.iter().filter(|(path, _)| long.iter().all(|it| it.path != *path)).collect();
    assert!(stale.is_empty(), "long no more: {stale:?}");
}
