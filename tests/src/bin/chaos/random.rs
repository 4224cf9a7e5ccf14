//! Randomness that a seed reproduces: SplitMix64.

/// Any number, the same for the same one.
pub(crate) fn mixed(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A sequence of numbers.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mixed(seed))
    }

    /// One of `from..to`.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        from + mixed(self.0) % (to - from)
    }
}
