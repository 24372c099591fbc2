//! The rows of features, stored by column, for gradients that have more entries than there are marginals.

use pulp::{Simd, WithSimd};

use crate::data::Real;
use crate::linalg::{CountingSort, arch};
use crate::parallel::for_items;
use crate::structured::fold::{WeightedSum, fold};
use crate::structured::model::{Chain, CompactRows};

/// Number of columns per task.
const BLOCK: usize = 256;

/// Number of rows per partial sum of a column. It limits the number of successive roundings.
const PIECE: usize = 512;

/// The rows in which each feature occurs. With these columns, threads need no partial sums of the gradient's size.
/// They first compute the marginals of all rows. Then each thread computes the gradient for some of the features.
#[derive(Debug)]
pub struct FeatureColumns {
    n_states: usize,
    /// The index of the first entry of each column, followed by the number of entries.
    starts: Vec<usize>,
    /// The row of each entry, in increasing order for each column.
    rows: Vec<u32>,
    /// The value of each entry, unless all are 1.
    values: Option<Vec<f64>>,
}

impl FeatureColumns {
    /// Whether marginals and columns take less memory than partial sums of the gradient's size. They do if all pairs
    /// have weights and there are more features than rows. The columns also require known labels, because the
    /// diagonal of the Hessian is computed from μ − μ(y).
    pub fn suit(chain: &Chain) -> bool {
        let rows = chain.emissions().rows();
        let is_wide = rows.is_sparse() && rows.n_features() > rows.len();
        is_wide && chain.pairs().is_none() && !chain.has_unknown()
    }

    /// Arranges a chain's rows by column, if that takes less memory.
    pub fn new(chain: &Chain) -> Option<Self> {
        Self::suit(chain).then(|| Self::of(chain.emissions().rows(), chain.n_states()))
    }

    /// Bytes of the columns and of the marginals p (μ − μ(y)) of all rows, from which a pass sums the gradient.
    pub fn bytes(chain: &Chain) -> u128 {
        let rows = chain.emissions().rows();
        let entry = size_of::<u32>() + if rows.has_only_ones() { 0 } else { size_of::<f64>() };
        // While the columns are filled, there is a second copy of `starts`.
        let starts = 2 * size_of::<usize>() as u128 * (rows.n_features() as u128 + 1);
        let marginals = (size_of::<f64>() * chain.n_states()) as u128 * rows.len() as u128;
        entry as u128 * rows.n_entries() as u128 + starts + marginals
    }

    fn of(all: &CompactRows, n_states: usize) -> Self {
        let mut sort = CountingSort::new(all.n_features());
        for row in 0..all.len() {
            all.visit(row, |feature, _| sort.count(feature));
        }
        let starts = sort.starts();
        let n_entries = starts[all.n_features()];
        let mut rows = vec![0; n_entries];
        let mut values = (!all.has_only_ones()).then(|| vec![0.0; n_entries]);
        for row in 0..all.len() {
            all.visit(row, |feature, value| {
                let place = sort.place(feature);
                rows[place] = row as u32;
                if let Some(values) = &mut values {
                    values[place] = value;
                }
            });
        }
        Self { n_states, starts, rows, values }
    }

    /// Sets `target`\[feature, label\] to `end`(index, Σ_t x_t δ_t), where δ has a row of labels for each row of
    /// features. If `squared`, uses the squares of the features.
    pub fn sum<T: Real>(
        &self,
        (delta, squared): (&[f64], bool),
        target: &mut [T],
        end: impl Fn(usize, f64) -> f64 + Sync,
    ) {
        let size = BLOCK * self.n_states;
        for_items(target.chunks_mut(size).enumerate(), 1, |(block, target)| {
            let first = block * BLOCK;
            arch().dispatch(BlockSums { columns: self, delta, squared, first, target, end: &end });
        });
    }
}

struct BlockSums<'a, T, F> {
    columns: &'a FeatureColumns,
    delta: &'a [f64],
    squared: bool,
    /// Index of the first feature.
    first: usize,
    target: &'a mut [T],
    end: &'a F,
}

impl<T: Real, F: Fn(usize, f64) -> f64> WithSimd for BlockSums<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { columns, delta, squared, first, target, end } = self;
        let FeatureColumns { n_states, starts, rows, values } = columns;
        let n_states = *n_states;
        let mut sums = vec![0.0; 2 * n_states];
        let (sums, part) = sums.split_at_mut(n_states);
        for (feature, target) in (first..).zip(target.chunks_exact_mut(n_states)) {
            sums.fill(0.0);
            let range = starts[feature]..starts[feature + 1];
            for start in range.clone().step_by(PIECE) {
                let piece = start..(start + PIECE).min(range.end);
                let entries = rows[piece.clone()].iter().map(
                    #[inline(always)]
                    |row| &delta[*row as usize * n_states..],
                );
                if let Some(values) = values {
                    let factors = values[piece].iter().map(
                        #[inline(always)]
                        |x| if squared { x * x } else { *x },
                    );
                    fold::<WeightedSum, S, f64>(simd, factors.zip(entries), part);
                } else {
                    let entries = entries.map(
                        #[inline(always)]
                        |row| (1.0, row),
                    );
                    fold::<WeightedSum, S, f64>(simd, entries, part);
                }
                sums.iter_mut().zip(&*part).for_each(|(sum, part)| *sum += part);
            }
            let indices = feature * n_states..;
            for ((target, sum), index) in target.iter_mut().zip(&*sums).zip(indices) {
                *target = T::narrow(end(index, *sum));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Csr;
    use crate::structured::model::Hamming;

    #[test]
    fn sums_over_columns_equal_sums_over_rows() {
        let columns = [0, 2, 2, 1, 2];
        for x in [[1.0; 5], [1.0, 2.0, -1.0, 0.5, 3.0]] {
            let matrix = Csr::new(&[0, 2, 3, 3, 5], &columns, &x, 4).unwrap();
            let rows = CompactRows::new(matrix.into()).unwrap();
            for n_states in [1, 3, 9, 22] {
                let by_column = FeatureColumns::of(&rows, n_states);
                let delta: Vec<f64> = (0..4 * n_states).map(|at| at as f64 - 3.0).collect();
                for squared in [false, true] {
                    let mut expected = vec![0.25; 4 * n_states];
                    for (entry, row) in [0, 0, 1, 3, 3].into_iter().enumerate() {
                        let x = if squared { x[entry] * x[entry] } else { x[entry] };
                        for label in 0..n_states {
                            expected[columns[entry] as usize * n_states + label] +=
                                x * delta[row * n_states + label];
                        }
                    }
                    let mut found = vec![9.0_f32; 4 * n_states];
                    by_column.sum((&delta, squared), &mut found, |_, sum| sum + 0.25);
                    assert!(found.iter().zip(&expected).all(|(f, e)| f64::from(*f) == *e));
                }
            }
        }
    }

    #[test]
    fn bytes_count_columns_and_marginals() {
        for x in [[1.0; 3], [1.0, 2.0, -1.0]] {
            let matrix = Csr::new(&[0, 2, 3], &[0, 7, 3], &x, 9).unwrap();
            let mode = Hamming::Count;
            let chain = Chain::new(matrix.into(), &[0, 2], Some(&[0, 1]), 2, true, mode).unwrap();
            let FeatureColumns { starts, rows, values, .. } = FeatureColumns::new(&chain).unwrap();
            let of_values = values.map_or(0, |values| size_of_val(&values[..]));
            let of_marginals = 2 * 2 * size_of::<f64>();
            let of_columns = 2 * size_of_val(&starts[..]) + size_of_val(&rows[..]) + of_values;
            assert_eq!(FeatureColumns::bytes(&chain), (of_columns + of_marginals) as u128);
        }
    }

    #[test]
    fn long_columns_are_summed_in_pieces() {
        let n = 3 * PIECE + 1;
        let ends: Vec<i64> = (0..=n as i64).collect();
        let matrix_values = vec![1.0; n];
        let features = vec![0; n];
        let matrix = Csr::new(&ends, &features, &matrix_values, 1).unwrap();
        let columns = FeatureColumns::of(&CompactRows::new(matrix.into()).unwrap(), 2);
        let mut sums = vec![0.0; 2];
        columns.sum((&vec![0.5; 2 * n], false), &mut sums, |_, sum| sum);
        assert_eq!(sums, [0.5 * n as f64; 2]);
    }
}
