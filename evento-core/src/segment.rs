use std::fmt;

/// The aggregates whose key hash matches a mask: `hash & mask == number`.
///
/// A component starts with [`Segment::WHOLE`], which takes every aggregate.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Segment {
    /// The bits of the hash that must match, under the mask.
    pub number: u32,
    /// Which bits of the hash count.
    pub mask: u32,
}

impl Segment {
    /// Every aggregate.
    pub const WHOLE: Self = Self { number: 0, mask: 0 };

    /// Whether events with this [`key_hash`] belong to the segment.
    #[must_use]
    pub const fn contains(self, hash: u64) -> bool {
        hash & self.mask as u64 == self.number as u64
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, u64::from(self.mask) + 1)
    }
}

/// The hash of an aggregate, fixed for ever: FNV-1a, 64 bits, over aggregate type, a zero byte, aggregate id.
///
/// Stores keep it with each event; segments are cut by it, so no version may ever compute another.
///
/// ```
/// use evento_core::key_hash;
///
/// assert_eq!(key_hash("", ""), 0xaf63_bd4c_8601_b7df);
/// assert_eq!(key_hash("order", "1"), 0xdf46_ec9f_3512_6a4c);
/// assert_eq!(key_hash("aircraft", "N14228"), 0xe06d_70c0_4620_1e14);
/// ```
#[must_use]
pub const fn key_hash(aggregate_type: &str, aggregate_id: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    let hash = fnv1a(OFFSET, aggregate_type.as_bytes());
    fnv1a(fnv1a(hash, &[0]), aggregate_id.as_bytes())
}

const fn fnv1a(mut hash: u64, bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(PRIME);
        i += 1;
    }
    hash
}
