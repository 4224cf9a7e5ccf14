//! Appending.

use crate::support::Case;

pub(crate) fn cases() -> Vec<Case> {
    Vec::new()
}
