//! The look-up by name that every registry shares.

use crate::error::{Error, Result};

/// The value called `name` in a table of all values that `argument` may take.
///
/// # Errors
/// [`Error::InvalidArgument`] with the known names, in the order of the table.
pub(crate) fn find<T: Copy>(
    argument: &'static str,
    name: &str,
    table: &[(&'static str, T)],
) -> Result<T> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| Error::unknown(argument, name, names(table)))
}

/// The names of a table, in its order.
pub(crate) fn names<T>(table: &[(&'static str, T)]) -> Vec<&'static str> {
    table.iter().map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_or_refused_with_all_that_are_known() {
        let table = [("one", 1), ("two", 2)];
        assert_eq!(find("count", "two", &table), Ok(2));
        let message = find("count", "Two", &table).unwrap_err().to_string();
        assert_eq!(message, "count: unknown name \"Two\"; use one of one, two");
        assert_eq!(names(&table), ["one", "two"]);
    }
}
