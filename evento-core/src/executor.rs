use std::fmt;

/// The name of an executor: what a handler names and a bundle registers.
///
/// A constant of this type cannot be misspelt where it is used: `#[event_handler(executor = READ_MODEL)]`.
///
/// ```
/// use evento_core::ExecutorName;
///
/// pub const READ_MODEL: ExecutorName = ExecutorName::new("read-model");
/// assert_eq!(READ_MODEL.as_str(), "read-model");
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ExecutorName(&'static str);

impl ExecutorName {
    /// The most bytes a name may have.
    pub const MAX_LEN: usize = 64;

    /// Names an executor.
    ///
    /// # Panics
    /// Unless the name has 1 to 64 bytes of `a-z`, `0-9`, `-` and `_`. In a constant and in `executor = ".."` that is
    /// a compile error.
    #[must_use]
    #[track_caller]
    pub const fn new(name: &'static str) -> Self {
        assert!(Self::is_valid(name), "an executor's name has 1 to 64 bytes of `a-z`, `0-9`, `-` and `_`");
        Self(name)
    }

    /// Whether `name` could name an executor.
    #[must_use]
    pub const fn is_valid(name: &str) -> bool {
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.len() > Self::MAX_LEN {
            return false;
        }
        let mut i = 0;
        while i < bytes.len() {
            if !matches!(bytes[i], b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_') {
                return false;
            }
            i += 1;
        }
        true
    }

    /// The name as text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for ExecutorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl From<ExecutorName> for String {
    fn from(name: ExecutorName) -> Self {
        name.0.to_owned()
    }
}
