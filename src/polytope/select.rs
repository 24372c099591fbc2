//! The largest entries of a vector, by selection.

use super::Scratch;

/// Up to this many entries insertion into a short sorted list beats selection over a copy.
const SHORT: usize = 24;

/// Writes the indices of the `count` largest entries of `v` to `scratch.order`; ties go to the smaller
/// index, and with `sorted` the order is by falling value, then by index.
pub(super) fn largest(v: &[f64], count: usize, sorted: bool, scratch: &mut Scratch) {
    let count = count.min(v.len());
    scratch.order.clear();
    if count <= SHORT {
        by_insertion(v, count, &mut scratch.order);
    } else {
        by_selection(v, count, &mut scratch.values, &mut scratch.order);
        if sorted {
            scratch.order.sort_unstable_by(|&i, &j| v[j].total_cmp(&v[i]).then(i.cmp(&j)));
        }
    }
}

/// The largest entry (−∞ of none), several at a time.
pub(super) fn maximum(v: &[f64]) -> f64 {
    let mut largest = [f64::NEG_INFINITY; 16];
    let (chunks, rest) = v.as_chunks::<16>();
    for chunk in chunks {
        for (largest, &value) in largest.iter_mut().zip(chunk) {
            *largest = if value > *largest { value } else { *largest };
        }
    }
    rest.iter().chain(&largest).fold(f64::NEG_INFINITY, |max, &value| max.max(value))
}

fn by_insertion(v: &[f64], count: usize, order: &mut Vec<usize>) {
    let (mut values, mut classes) = ([0.0; SHORT], [0; SHORT]);
    for (class, &value) in v.iter().enumerate() {
        let mut place = match class {
            _ if class < count => class,
            _ if value > values[count - 1] => count - 1,
            _ => continue,
        };
        while place > 0 && values[place - 1] < value {
            (values[place], classes[place]) = (values[place - 1], classes[place - 1]);
            place -= 1;
        }
        (values[place], classes[place]) = (value, class);
    }
    order.extend_from_slice(&classes[..count]);
}

fn by_selection(v: &[f64], count: usize, values: &mut Vec<f64>, order: &mut Vec<usize>) {
    values.clear();
    values.extend_from_slice(v);
    let (above, &mut least, _) = values.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a));
    let mut ties = count - above.iter().filter(|value| **value > least).count();
    for (index, &value) in v.iter().enumerate() {
        if value > least {
            order.push(index);
        } else if value == least && ties > 0 {
            ties -= 1;
            order.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_the_head_of_a_stable_sort(
            v in prop::collection::vec((-4i8..4).prop_map(|x| f64::from(x) / 2.0), 1..80),
            share in 0.0..1.0,
        ) {
            let count = 1 + (share * (v.len() - 1) as f64) as usize;
            let mut expected: Vec<usize> = (0..v.len()).collect();
            expected.sort_by(|&i, &j| v[j].total_cmp(&v[i]));
            expected.truncate(count);
            let mut scratch = Scratch::default();
            largest(&v, count, true, &mut scratch);
            prop_assert_eq!(&scratch.order, &expected);
            largest(&v, count, false, &mut scratch);
            scratch.order.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(&scratch.order, &expected);
        }
    }
}
