//! The look-up of registry entries by name.

use crate::error::{Error, Result};

/// The value of that name in a table of all that `argument` may be.
///
/// # Errors
/// [`Error::unknown`].
pub(crate) fn find<T: Copy>(
    argument: &'static str,
    name: &str,
    table: &[(&'static str, T)],
) -> Result<T> {
    let found = table.iter().find(|(known, _)| *known == name);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| Error::unknown(argument, name, table.iter().map(|(known, _)| *known)))
}
