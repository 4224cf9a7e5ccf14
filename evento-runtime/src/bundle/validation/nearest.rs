/// The known name that `wanted` was most likely meant to be, if any is near enough to ask about.
pub(super) fn nearest<'a>(wanted: &str, known: &[&'a str]) -> Option<&'a str> {
    let wanted: Vec<_> = wanted.chars().collect();
    let limit = (wanted.len() / 3).clamp(1, 4);
    let near = known.iter().map(|name| (distance(&wanted, &name.chars().collect::<Vec<_>>()), *name));
    near.filter(|(distance, _)| *distance <= limit).min().map(|(_, name)| name)
}

/// How many letters were added, left out, changed or swapped with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_finds_its_name_and_another_word_finds_none() {
        let known = ["audit", "read-model", "read-models"];
        for (wanted, expected) in [
            ("read-modle", Some("read-model")),
            ("readmodel", Some("read-model")),
            ("aduit", Some("audit")),
            ("audits", Some("audit")),
            ("mail", None),
            ("", None),
        ] {
            assert_eq!(nearest(wanted, &known), expected, "{wanted}");
        }
    }
}
