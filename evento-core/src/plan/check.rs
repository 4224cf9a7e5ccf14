//! What a plan must hold, as far as the compiler can tell.

use super::{
    Plan,
    report::Report,
    table::{Table, equal},
};
use crate::{ComponentDescriptor, ExecutorName, HandlerDescriptor};

/// Writes every problem of `plan` into `report`, one a line.
pub(super) const fn problems(plan: &Plan, report: &mut Report) {
    executors_twice(plan.executors, report);
    let mut seen = Seen { components: Table::new(), events: Table::new() };
    let mut group = 0;
    while group < plan.components.len() {
        let components = plan.components[group].components;
        let mut i = 0;
        while i < components.len() {
            component(plan, &components[i], &mut seen, report);
            i += 1;
        }
        group += 1;
    }
}

/// What the plan's components were found to have so far.
struct Seen {
    /// By kind and name.
    components: Table<&'static ComponentDescriptor>,
    /// By the event's name: who takes it first.
    events: Table<(&'static ComponentDescriptor, &'static HandlerDescriptor)>,
}

const fn executors_twice(executors: &[ExecutorName], report: &mut Report) {
    let mut i = 0;
    while i < executors.len() {
        if knows(executors.split_at(i).0, executors[i]) {
            report.line().text("the executor `").text(executors[i].as_str()).text("` is listed twice: remove one");
        }
        i += 1;
    }
}

const fn component(plan: &Plan, component: &'static ComponentDescriptor, seen: &mut Seen, report: &mut Report) {
    if let Some(first) = seen.components.seen(component.kind as u8, component.name, component) {
        report.line().text("two components are ").text(component.kind.as_str()).text(" `").text(component.name);
        report.text("`: ").place(&first.location).text(" and ").place(&component.location);
        report.text("; give one of them another name, `name = \"..\"`");
    }
    let mut i = 0;
    while i < component.handlers.len() {
        let handler = &component.handlers[i];
        if let Some(executor) = handler.executor
            && !knows(plan.executors, executor)
        {
            unknown_executor(plan.executors, executor, report.line().handler(component, handler));
        }
        let event = &handler.event;
        if let Some((other, first)) = seen.events.seen(0, event.name, (component, handler))
            && !equal(first.event.aggregate, event.aggregate)
        {
            report.line().text("the event `").text(event.name).text("` belongs to the aggregate `");
            report.text(first.event.aggregate).text("` in ").handler(other, first).text(", to `");
            report.text(event.aggregate).text("` in ").handler(component, handler);
            report.text("; one event name is one Rust type: rename one");
        }
        i += 1;
    }
}

const fn unknown_executor(known: &[ExecutorName], executor: ExecutorName, report: &mut Report) {
    report.text(" names the executor `").text(executor.as_str()).text("`, which the plan does not list (it lists ");
    let mut i = 0;
    while i < known.len() {
        report.text(if i == 0 { "`" } else { ", `" }).text(known[i].as_str()).text("`");
        i += 1;
    }
    report.text(if known.is_empty() { "none)" } else { ")" });
    match nearest(known, executor) {
        Some(near) => report.text("; did you mean `").text(near.as_str()).text("`?"),
        None => report.text("; add it to `executors`"),
    };
}

const fn knows(executors: &[ExecutorName], executor: ExecutorName) -> bool {
    let mut i = 0;
    while i < executors.len() {
        if equal(executors[i].as_str(), executor.as_str()) {
            return true;
        }
        i += 1;
    }
    false
}

/// The executor that `given` was likely meant to be.
const fn nearest(executors: &[ExecutorName], given: ExecutorName) -> Option<ExecutorName> {
    let half = given.as_str().len() / 2;
    let mut limit = if half > 3 { 3 } else { half } + 1;
    let mut found = None;
    let mut i = 0;
    while i < executors.len() {
        let distance = distance(executors[i].as_str().as_bytes(), given.as_str().as_bytes());
        if distance < limit {
            limit = distance;
            found = Some(executors[i]);
        }
        i += 1;
    }
    found
}

/// How many bytes must change, come or go to make `a` of `b`.
const fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row = [0; ExecutorName::MAX_LEN + 1];
    let mut j = 0;
    while j <= b.len() {
        row[j] = j;
        j += 1;
    }
    let mut i = 0;
    while i < a.len() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        let mut j = 0;
        while j < b.len() {
            let mut best = if a[i] == b[j] { diagonal } else { diagonal + 1 };
            diagonal = row[j + 1];
            if row[j] + 1 < best {
                best = row[j] + 1;
            }
            if diagonal + 1 < best {
                best = diagonal + 1;
            }
            row[j + 1] = best;
            j += 1;
        }
        i += 1;
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};
    use crate::ExecutorName;

    #[test]
    fn nearest_is_near_or_nothing() {
        let executors = [ExecutorName::new("audit"), ExecutorName::new("read-model")];
        assert_eq!(nearest(&executors, ExecutorName::new("read-modle")), Some(executors[1]));
        assert_eq!(nearest(&executors, ExecutorName::new("mail")), None);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }
}
