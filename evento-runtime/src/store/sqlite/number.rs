use std::fmt::{self, Display};

use evento_core::store::StoreError;
use rusqlite::{Row, types::Type};

/// A value that this version does not write, named by where it stands.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) String);

impl Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

/// Reads a number; one that `T` does not hold, a negative one above all, is refused. `row` is of `table` and is the one
/// that `which` names.
pub(super) fn number<T: TryFrom<i64>>(
    row: &Row<'_>,
    column: usize,
    table: &str,
    which: impl Display,
) -> rusqlite::Result<T> {
    let stored: i64 = row.get(column)?;
    T::try_from(stored).map_err(|_| {
        let name = row.as_ref().column_name(column).unwrap_or_default();
        let what = format!("`{name}` of {table}, {which}, is {stored}, which is out of its range");
        rusqlite::Error::FromSqlConversionFailure(column, Type::Integer, Box::new(Unreadable(what)))
    })
}

/// The number after `last`, as it is stored. At the end of the range there is none: beginning again, it would let a stale
/// writer through.
pub(super) fn next(last: u64, name: &str, table: &str, which: impl Display) -> Result<u64, StoreError> {
    match i64::try_from(last) {
        Ok(i64::MAX) | Err(_) => {
            Err(StoreError::Corrupt { what: format!("`{name}` of {table}, {which}, is {last}, the end of its range") })
        }
        Ok(_) => Ok(last + 1),
    }
}

/// A count as it is stored: one beyond the range stays at its end.
pub(super) fn stored(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
