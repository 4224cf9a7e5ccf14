/// A set of events, by their index in the log.
#[derive(Clone, Debug)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn new(events: usize) -> Self {
        Self(vec![0; events.div_ceil(64)])
    }

    pub(super) fn insert(&mut self, event: usize) {
        self.0[event / 64] |= 1 << (event % 64);
    }

    pub(super) fn remove(&mut self, event: usize) {
        self.0[event / 64] &= !(1 << (event % 64));
    }

    pub(super) fn contains(&self, event: usize) -> bool {
        self.0[event / 64] >> (event % 64) & 1 == 1
    }

    pub(super) fn put(&mut self, event: usize, is_in: bool) {
        if is_in { self.insert(event) } else { self.remove(event) }
    }

    pub(super) fn word(&self, index: usize) -> u64 {
        self.0[index]
    }

    /// Takes the events of `other` from `from` on out of it.
    pub(super) fn remove_from(&mut self, from: usize, other: impl Fn(usize) -> u64) {
        for (index, word) in self.0.iter_mut().enumerate().skip(from / 64) {
            let kept = if index == from / 64 { (1 << (from % 64)) - 1 } else { 0 };
            *word &= !(other(index) & !kept);
        }
    }
}

/// The events below `end` whose bit is set in `word`, a word at a time.
pub(super) fn below(end: usize, word: impl Fn(usize) -> u64) -> impl Iterator<Item = usize> {
    (0..end.div_ceil(64)).flat_map(move |index| {
        let rest = end - index * 64;
        let mut left = word(index) & if rest >= 64 { u64::MAX } else { (1 << rest) - 1 };
        std::iter::from_fn(move || {
            (left != 0).then(|| {
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                index * 64 + bit
            })
        })
    })
}
