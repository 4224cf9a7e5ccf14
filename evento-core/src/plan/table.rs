//! A table of names for the compiler: a constant's evaluation has a budget that comparing all pairs would exceed.

const SLOTS: usize = 4096;
const MOST: usize = SLOTS / 4 * 3;

/// What was seen first under each tag and name.
pub(super) struct Table<T> {
    slots: [Option<Entry<T>>; SLOTS],
    len: usize,
}

struct Entry<T> {
    tag: u8,
    name: &'static str,
    value: T,
}

impl<T: Copy> Table<T> {
    pub(super) const fn new() -> Self {
        Self { slots: [const { None }; SLOTS], len: 0 }
    }

    /// Answers with what is there under `tag` and `name`, or puts `value` there.
    ///
    /// A full table (3,072 names) takes no more; what it then misses is found when the bundle starts.
    pub(super) const fn seen(&mut self, tag: u8, name: &'static str, value: T) -> Option<T> {
        let mut slot = place(name);
        while let Some(entry) = &self.slots[slot] {
            if entry.tag == tag && equal(entry.name, name) {
                return Some(entry.value);
            }
            slot = (slot + 1) % SLOTS;
        }
        if self.len < MOST {
            self.slots[slot] = Some(Entry { tag, name, value });
            self.len += 1;
        }
        None
    }
}

/// FNV-1a, folded to a slot.
const fn place(name: &str) -> usize {
    let bytes = name.as_bytes();
    let mut hash: u32 = 0x811c_9dc5;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u32).wrapping_mul(0x0100_0193);
        i += 1;
    }
    (hash ^ (hash >> 16)) as usize % SLOTS
}

pub(super) const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{MOST, Table, equal};

    #[test]
    fn names_are_compared_whole() {
        assert!(equal("order.placed", "order.placed"));
        assert!(!equal("order.placed", "order.placer"));
        assert!(!equal("order.placed", "xrder.placed"));
        assert!(!equal("order", "order.placed"));
    }

    #[test]
    fn the_first_of_a_name_is_kept() {
        let mut table = Table::new();
        assert_eq!(table.seen(0, "a", 1), None);
        assert_eq!(table.seen(0, "a", 2), Some(1));
        assert_eq!(table.seen(1, "a", 3), None);
        assert_eq!(table.seen(0, "b", 4), None);
        assert_eq!(table.seen(0, "a", 5), Some(1));
    }

    #[test]
    fn a_full_table_takes_no_more() {
        let mut table = Table::new();
        let name = |i: usize| -> &'static str { Box::leak(format!("event.{i}").into_boxed_str()) };
        for i in 0..MOST + 100 {
            assert_eq!(table.seen(0, name(i), i), None);
        }
        for i in 0..MOST {
            assert_eq!(table.seen(0, name(i), i + 1), Some(i));
        }
        assert_eq!(table.seen(0, name(MOST), 0), None);
    }
}
