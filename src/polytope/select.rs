//! The largest entries of a vector, by selection.

use pulp::Simd;

use super::Scratch;
use crate::linalg::{Element, Kernel};

/// Number of requested entries up to which insertion into a sorted list is faster than selection on a copy.
const MAX_INSERTED: usize = 24;
/// Number of entries compared at a time.
const LANES: usize = 16;

/// Writes the indices of the `count` largest entries of `v` to `scratch.order`. Ties go to the
/// smaller index. With `sorted`, the indices are ordered by decreasing value, then by index.
pub(super) fn largest(v: &[f64], count: usize, sorted: bool, scratch: &mut Scratch) {
    let count = count.min(v.len());
    scratch.order.clear();
    if count <= MAX_INSERTED {
        f64::dispatch(Leaders { v, count, order: &mut scratch.order });
    } else {
        by_selection(v, count, &mut scratch.values, &mut scratch.order);
        if sorted {
            scratch.order.sort_unstable_by(|&i, &j| v[j].total_cmp(&v[i]).then(i.cmp(&j)));
        }
    }
}

/// The largest entry, or −∞ if `v` is empty. Compares several entries at a time.
pub(super) fn maximum(v: &[f64]) -> f64 {
    let mut largest = lane_maxima(v);
    // First the maximum of each lane, including the last few entries of `v`; then the lower half of the lanes is
    // compared with the upper half until one lane is left. Comparisons of different lanes do not wait for each other.
    for (largest, &value) in largest.iter_mut().zip(v.as_chunks::<LANES>().1) {
        *largest = if value > *largest { value } else { *largest };
    }
    let mut width = LANES / 2;
    while width > 0 {
        let (low, high) = largest.split_at_mut(width);
        for (low, &high) in low.iter_mut().zip(&*high) {
            *low = if high > *low { high } else { *low };
        }
        width /= 2;
    }
    largest[0]
}

/// The largest entry of each of [`LANES`] disjoint parts of `v`, ignoring the last few entries of
/// `v`.
#[inline(always)]
fn lane_maxima(v: &[f64]) -> [f64; LANES] {
    let mut largest = [f64::NEG_INFINITY; LANES];
    for chunk in v.as_chunks::<LANES>().0 {
        for (largest, &value) in largest.iter_mut().zip(chunk) {
            *largest = if value > *largest { value } else { *largest };
        }
    }
    largest
}

/// The rank of each value in decreasing order, computed without branches. Tied values keep their
/// order.
#[inline(always)]
fn places(values: &[f64; LANES]) -> [i64; LANES] {
    let mut places = [0; LANES];
    for (i, &other) in values.iter().enumerate() {
        for (j, (place, &value)) in places.iter_mut().zip(values).enumerate() {
            *place += i64::from((other > value) | ((other == value) & (i < j)));
        }
    }
    places
}

/// Finds the `count` largest entries of `v` in decreasing order. Sorts only the entries that are at
/// least a floor, chosen so that at least `count` entries reach it.
struct Leaders<'a> {
    v: &'a [f64],
    count: usize,
    order: &'a mut Vec<usize>,
}

impl Kernel<f64> for Leaders<'_> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, _: S) {
        let Self { v, count, order } = self;
        let floor = if count <= LANES && v.len() >= 2 * LANES {
            let maxima = lane_maxima(v);
            let last = places(&maxima).iter().position(|place| *place + 1 == count as i64);
            last.map_or(f64::NEG_INFINITY, |last| maxima[last])
        } else {
            f64::NEG_INFINITY
        };
        let found = reaching(v, floor, order);
        if found <= LANES {
            let mut values = [f64::NEG_INFINITY; LANES];
            let mut classes = [0; LANES];
            for (slot, &class) in order[..found].iter().enumerate() {
                (values[slot], classes[slot]) = (v[class], class);
            }
            order.resize(LANES, 0);
            for (class, place) in classes.into_iter().zip(places(&values)) {
                order[place as usize] = class;
            }
        } else {
            insert(v, &mut order[..found], count);
        }
        order.truncate(count);
    }
}

/// Writes to the front of `order`, without branches, the indices at which `v` is at least the floor, and returns their
/// number. Each write must wait for the previous comparison in its half, so the two halves are processed side by side.
#[inline(always)]
fn reaching(v: &[f64], floor: f64, order: &mut Vec<usize>) -> usize {
    let half = v.len().div_ceil(2);
    order.resize(2 * half, 0);
    let (v, tail) = v.split_at(half);
    let (first, second) = order.split_at_mut(half);
    let (mut n_first, mut n_second) = (0, 0);
    for (class, &value) in v.iter().enumerate() {
        first[n_first] = class;
        n_first += usize::from(value >= floor);
        if let Some(&value) = tail.get(class) {
            second[n_second] = half + class;
            n_second += usize::from(value >= floor);
        }
    }
    order.copy_within(half..half + n_second, n_first);
    n_first + n_second
}

/// Moves the indices of the `count` largest entries of `v` among those in `order` to the front, sorted by decreasing
/// value.
fn insert(v: &[f64], order: &mut [usize], count: usize) {
    for next in 1..order.len() {
        let (class, mut place) = (order[next], next.min(count));
        while place > 0 && v[order[place - 1]] < v[class] {
            order[place] = order[place - 1];
            place -= 1;
        }
        order[place] = class;
    }
}

fn by_selection(v: &[f64], count: usize, values: &mut Vec<f64>, order: &mut Vec<usize>) {
    values.clear();
    values.extend_from_slice(v);
    let (above, &mut threshold, _) =
        values.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a));
    let mut ties = count - above.iter().filter(|value| **value > threshold).count();
    for (index, &value) in v.iter().enumerate() {
        if value > threshold {
            order.push(index);
        } else if value == threshold && ties > 0 {
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
