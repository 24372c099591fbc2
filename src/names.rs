//! Lookup by name, shared by all registries.

use crate::error::{Error, Result};

/// Looks up `name` in the table that lists all values of `argument`.
///
/// # Errors
/// [`Error::InvalidArgument`] with the known names, in the order of the table.
pub(crate) fn find<T: Copy>(
    argument: &'static str,
    name: &str,
    table: &[(&'static str, T)],
) -> Result<T> {
    let found = table.iter().find(|(known, _)| *known == name);
    match found {
        Some((_, value)) => Ok(*value),
        None => Err(unknown(argument, name, &names(table))),
    }
}

/// Checks that a name is in the table. Used for values that cannot be built from their name alone.
///
/// # Errors
/// As for [`find`].
pub(crate) fn check(argument: &'static str, name: &str, known: &[&str]) -> Result<()> {
    if known.contains(&name) { Ok(()) } else { Err(unknown(argument, name, known)) }
}

/// The names in a table, in the order of the table.
pub(crate) fn names<T>(table: &[(&'static str, T)]) -> Vec<&'static str> {
    table.iter().map(|(name, _)| *name).collect()
}

fn unknown(argument: &'static str, name: &str, known: &[&str]) -> Error {
    Error::argument(argument, format!("unknown name {name:?}; use one of {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_about_unknown_names_list_the_known_names() {
        let table = [("one", 1), ("two", 2)];
        assert_eq!(find("count", "two", &table), Ok(2));
        let message = find("count", "Two", &table).unwrap_err().to_string();
        assert_eq!(message, "count: unknown name \"Two\"; use one of one, two");
        assert_eq!(check("count", "Two", &names(&table)).unwrap_err().to_string(), message);
        assert_eq!(check("count", "one", &["one", "two"]), Ok(()));
    }
}
