use std::collections::BTreeMap;

use crate::{ConsumerExecutor, bundle::Problem};

/// Pools that would run dry with every permit taken, and leave nothing to the rest of the application.
pub(super) fn check(executors: &[ConsumerExecutor], headroom: usize, problems: &mut Vec<Problem>) {
    let mut by_pool: BTreeMap<&str, Vec<(&ConsumerExecutor, usize)>> = BTreeMap::new();
    for executor in executors {
        if let Some(pool) = executor.pool() {
            by_pool.entry(&pool.name).or_default().push((executor, pool.size));
        }
    }
    for (pool, drawing) in by_pool {
        let sizes: Vec<_> = drawing.iter().map(|(one, size)| format!("`{}` says {size}", one.name())).collect();
        let size = drawing.iter().map(|(_, size)| *size).min().unwrap_or_default();
        if drawing.iter().any(|(_, other)| *other != size) {
            let what = format!("executors disagree on the size of pool `{pool}`: {}", sizes.join(", "));
            problems.push(Problem::new(what, "give all of them the pool's size").at(drawing[0].0.location()));
            continue;
        }
        let sum = drawing.iter().fold(0_usize, |sum, (one, _)| sum.saturating_add(one.capacity()));
        if sum.saturating_add(headroom) > size {
            let each: Vec<_> = drawing.iter().map(|(one, _)| format!("`{}` {}", one.name(), one.capacity())).collect();
            let what = format!("pool `{pool}` has {size} places, and {} are needed", sum.saturating_add(headroom));
            let cure = format!("lower the capacities to {} in all, or enlarge the pool", size.saturating_sub(headroom));
            let note = format!("executors: {}; setting `headroom`: {headroom}", each.join(", "));
            problems.push(Problem::new(what, cure).at(drawing[0].0.location()).note(note));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::fixture::{Inline, problems_of, shop};

    fn tasks(name: &str, capacity: usize) -> ConsumerExecutor {
        ConsumerExecutor::tasks(name, capacity)
    }

    #[test]
    fn executors_that_would_drain_their_pool_are_refused_with_the_sum() {
        let fits = || shop().provide(Inline).executor(tasks("a", 5).draws_from("db", 10));
        assert_eq!(problems_of(fits().executor(tasks("b", 3).draws_from("db", 10)), &[]), [""; 0]);
        let text = problems_of(fits().executor(tasks("b", 4).draws_from("db", 10)), &[]);
        assert_eq!(
            text,
            [concat!(
                "pool `db` has 10 places, and 11 are needed\n",
                "executors: `a` 5, `b` 4; setting `headroom`: 2\n",
                "lower the capacities to 8 in all, or enlarge the pool"
            )]
        );
        let text = problems_of(fits().executor(tasks("b", 1).draws_from("db", 20)), &[]);
        assert!(text[0].contains("disagree on the size of pool `db`: `a` says 10, `b` says 20"), "{text:?}");
    }
}
