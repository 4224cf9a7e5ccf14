use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// What is found by the hash of an aggregate.
pub(super) type ByHash<T> = HashMap<u64, T, BuildHasherDefault<Mixed>>;

/// The hash of an aggregate is mixed already.
#[derive(Debug, Default)]
pub(super) struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        // The table takes its tag from the top bits, its bucket from the bottom ones; FNV mixes the top less.
        self.0 = hash ^ (hash << 32);
    }
}
