//! What a plan must hold, as far as the compiler can tell.

use super::{Plan, report::Report};
use crate::{ComponentDescriptor, EventType, ExecutorName, HandlerDescriptor};

/// Every problem of `plan`, one a line.
pub(super) const fn problems(plan: &Plan) -> Report {
    let mut report = Report::new();
    let mut i = 0;
    while i < plan.executors.len() {
        let executor = plan.executors[i];
        if knows(plan.executors.split_at(i).0, executor) {
            let line = report.line().text("the executor `").text(executor.as_str());
            report = line.text("` is listed twice: remove one");
        }
        i += 1;
    }
    let mut group = 0;
    while group < plan.components.len() {
        let mut place = 0;
        while place < plan.components[group].components.len() {
            report = component(plan, group, place, report);
            place += 1;
        }
        group += 1;
    }
    report
}

/// The problems of one component, given by its group and its place there.
const fn component(plan: &Plan, group: usize, place: usize, mut report: Report) -> Report {
    let component = &plan.components[group].components[place];
    if let Some(first) = same_before(plan, group, place) {
        report = report.line().text("two components are ").text(component.kind.as_str()).text(" `");
        report = report.text(component.name).text("`: ").place(&first.location).text(" and ");
        report = report.place(&component.location).text("; give one of them another name, `name = \"..\"`");
    }
    let mut i = 0;
    while i < component.handlers.len() {
        let handler = &component.handlers[i];
        if let Some(executor) = handler.executor
            && !knows(plan.executors, executor)
        {
            report = unknown_executor(plan, component, handler, executor, report.line());
        }
        if let Some((other, at)) = other_aggregate_before(plan, group, place, i) {
            report = report.line().text("the event `").text(handler.event.name).text("` belongs to the aggregate `");
            report = report.text(other.event.aggregate).text("` in ").handler(at, other).text(", to `");
            report = report.text(handler.event.aggregate).text("` in ").handler(component, handler);
            report = report.text("; one event name is one Rust type: rename one");
        }
        i += 1;
    }
    report
}

const fn unknown_executor(
    plan: &Plan,
    component: &ComponentDescriptor,
    handler: &HandlerDescriptor,
    executor: ExecutorName,
    report: Report,
) -> Report {
    let mut report = report.handler(component, handler).text(" names the executor `").text(executor.as_str());
    report = report.text("`, which the plan does not list (it lists ");
    let mut i = 0;
    while i < plan.executors.len() {
        report = report.text(if i == 0 { "`" } else { ", `" }).text(plan.executors[i].as_str()).text("`");
        i += 1;
    }
    report = report.text(if plan.executors.is_empty() { "none)" } else { ")" });
    match nearest(plan.executors, executor) {
        Some(near) => report.text("; did you mean `").text(near.as_str()).text("`?"),
        None => report.text("; add it to `executors`"),
    }
}

/// An earlier component of the same kind and name.
const fn same_before(plan: &Plan, group: usize, place: usize) -> Option<&'static ComponentDescriptor> {
    let component = &plan.components[group].components[place];
    let mut g = 0;
    while g <= group {
        let components = plan.components[g].components;
        let end = if g == group { place } else { components.len() };
        let mut p = 0;
        while p < end {
            let other = &components[p];
            if other.kind as u8 == component.kind as u8 && equal(other.name, component.name) {
                return Some(other);
            }
            p += 1;
        }
        g += 1;
    }
    None
}

/// An earlier handler of an event with the same name and another aggregate.
const fn other_aggregate_before(
    plan: &Plan,
    group: usize,
    place: usize,
    index: usize,
) -> Option<(&'static HandlerDescriptor, &'static ComponentDescriptor)> {
    let event = plan.components[group].components[place].handlers[index].event;
    let mut g = 0;
    while g <= group {
        let components = plan.components[g].components;
        let mut p = 0;
        while p < components.len() && !(g == group && p > place) {
            let end = if g == group && p == place { index } else { components[p].handlers.len() };
            let mut i = 0;
            while i < end {
                if contradict(&components[p].handlers[i].event, &event) {
                    return Some((&components[p].handlers[i], &components[p]));
                }
                i += 1;
            }
            p += 1;
        }
        g += 1;
    }
    None
}

const fn contradict(a: &EventType, b: &EventType) -> bool {
    equal(a.name, b.name) && !equal(a.aggregate, b.aggregate)
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

/// Compares from the end: names share their beginnings, and a constant's evaluation has a budget.
const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = a.len();
    while i > 0 {
        i -= 1;
        if a[i] != b[i] {
            return false;
        }
    }
    true
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
    use super::{distance, equal, nearest};
    use crate::ExecutorName;

    #[test]
    fn names_are_compared_whole() {
        assert!(equal("order.placed", "order.placed"));
        assert!(!equal("order.placed", "order.placer"));
        assert!(!equal("order.placed", "xrder.placed"));
        assert!(!equal("order", "order.placed"));
    }

    #[test]
    fn nearest_is_near_or_nothing() {
        let executors = [ExecutorName::new("audit"), ExecutorName::new("read-model")];
        assert_eq!(nearest(&executors, ExecutorName::new("read-modle")), Some(executors[1]));
        assert_eq!(nearest(&executors, ExecutorName::new("mail")), None);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }
}
