//! Labels of any supported type, and their encoding as class indices.

use super::npz::NpyArray;
use crate::error::{Error, Result};

/// A type of labels. Classes are sorted in increasing order.
///
/// Integers, booleans and strings are supported. Other crates cannot add types, because model files
/// contain the classes.
pub trait Label: Clone + Ord + private::Stored {}

mod private {
    use super::NpyArray;

    /// A type that model files can contain.
    pub trait Stored: Sized {
        /// Converts labels to a one-dimensional array.
        fn stored(labels: &[Self]) -> NpyArray;

        /// Converts an array to labels; returns None if the array has labels of another type.
        fn restored(array: &NpyArray) -> Option<Vec<Self>>;
    }
}

pub(super) use private::Stored;

macro_rules! integer_labels {
    ($($integer:ty),*) => {$(
        impl Label for $integer {}
        impl Stored for $integer {
            fn stored(labels: &[Self]) -> NpyArray {
                NpyArray::integers(labels.iter().map(|label| i64::from(*label)))
            }

            fn restored(array: &NpyArray) -> Option<Vec<Self>> {
                array.as_integers()?.into_iter().map(|label| Self::try_from(label).ok()).collect()
            }
        }
    )*};
}

integer_labels!(i8, i16, i32, i64, u8, u16, u32);

impl Label for bool {}

impl Stored for bool {
    fn stored(labels: &[Self]) -> NpyArray {
        NpyArray::booleans(labels)
    }

    fn restored(array: &NpyArray) -> Option<Vec<Self>> {
        array.as_booleans()
    }
}

impl Label for String {}

impl Stored for String {
    fn stored(labels: &[Self]) -> NpyArray {
        NpyArray::strings(labels)
    }

    fn restored(array: &NpyArray) -> Option<Vec<Self>> {
        array.as_strings()
    }
}

impl Label for &str {}

impl Stored for &str {
    fn stored(labels: &[Self]) -> NpyArray {
        NpyArray::strings(labels)
    }

    /// Borrowed labels cannot be read, because they cannot outlive the array.
    fn restored(_: &NpyArray) -> Option<Vec<Self>> {
        None
    }
}

/// Returns the classes in increasing order, and for each label the index of its class.
///
/// # Errors
/// [`Error::InvalidArgument`] naming `y` if the numbers of labels and rows differ, or if there are fewer than two
/// classes.
pub(super) fn encode<L: Label>(labels: &[L], n_rows: usize) -> Result<(Vec<L>, Vec<u32>)> {
    if labels.len() != n_rows {
        let n_labels = labels.len();
        let message = format!("has {n_labels} labels for {n_rows} rows; pass one for each row");
        return Err(Error::argument("y", message));
    }
    let mut classes = labels.to_vec();
    classes.sort_unstable();
    classes.dedup();
    if classes.len() < 2 {
        let message = format!("has {} classes; a classifier needs at least two", classes.len());
        return Err(Error::argument("y", message));
    }
    let code = |label| classes.partition_point(|class| class < label) as u32;
    let codes = labels.iter().map(code).collect();
    Ok((classes, codes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_count_the_sorted_classes() {
        let labels = ["dog", "cat", "dog", "emu"];
        let (classes, codes) = encode(&labels, 4).unwrap();
        assert_eq!(classes, ["cat", "dog", "emu"]);
        assert_eq!(codes, [1, 0, 1, 2]);
        let message = |labels: &[i64], n| encode(labels, n).unwrap_err().to_string();
        assert_eq!(message(&[1, 2], 3), "y: has 2 labels for 3 rows; pass one for each row");
        assert_eq!(message(&[7, 7], 2), "y: has 1 classes; a classifier needs at least two");
    }
}
