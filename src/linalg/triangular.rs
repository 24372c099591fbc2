//! Vectorised kernels for Cholesky factorisation and for solving with the factor.

use pulp::Simd;

use super::{Element, Kernel, Lane};

/// Number of independent sums in a substitution. Several sums hide the latency of additions.
const CHAINS: usize = 4;

/// Factorises a block on the diagonal, row by row. Pivots below `smallest` are raised to it.
pub(super) fn factorise_block(block: &mut [f64], stride: usize, start: usize, smallest: f64) {
    f64::dispatch(Block { block, stride, start, smallest });
}

/// Multiplies rows by the transposed inverse of a factorised block on the diagonal. The rows are stored by columns:
/// `lines` has a line of `width` values, one per row, for each column of the block. `width` is a multiple of the number
/// of lanes of every supported vector.
pub(super) fn divide_panel(
    (block, stride, start): (&[f64], usize, usize),
    lines: &mut [f64],
    width: usize,
) {
    f64::dispatch(Panel { block, stride, start, lines, width });
}

/// Solves L Lᵀ x = b for a factor L with rows `stride` apart; overwrites b.
pub(super) fn substitute(factor: &[f64], stride: usize, b: &mut [f64]) {
    f64::dispatch(Substitution { factor, stride, b });
}

/// ⟨a, b⟩.
#[inline(always)]
fn product<S: Simd>(simd: S, a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (S::as_simd_f64s(a), S::as_simd_f64s(b));
    let mut sums = [simd.splat_f64s(0.0); CHAINS];
    let (a_whole, a_last) = a.as_chunks::<CHAINS>();
    let (b_whole, b_last) = b.as_chunks::<CHAINS>();
    for (a, b) in a_whole.iter().zip(b_whole) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum = simd.mul_add_e_f64s(*a, *b, *sum);
        }
    }
    for ((sum, a), b) in sums.iter_mut().zip(a_last).zip(b_last) {
        *sum = simd.mul_add_e_f64s(*a, *b, *sum);
    }
    let [first, second, third, fourth] = sums;
    let sum = simd.add_f64s(simd.add_f64s(first, second), simd.add_f64s(third, fourth));
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    simd.reduce_sum_f64s(sum) + rest
}

struct Block<'a> {
    block: &'a mut [f64],
    stride: usize,
    start: usize,
    smallest: f64,
}

impl Kernel<f64> for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S) {
        let Self { block, stride, start, smallest } = self;
        for i in 0..block.len() / stride {
            let (done, rest) = block.split_at_mut(i * stride);
            let row = &mut rest[start..stride];
            for (k, other) in done.chunks_exact(stride).enumerate() {
                let other = &other[start..];
                row[k] = (row[k] - product(simd, &row[..k], &other[..k])) / other[k];
            }
            let pivot = row[i] - product(simd, &row[..i], &row[..i]);
            row[i] = pivot.max(smallest).sqrt();
        }
    }
}

struct Panel<'a> {
    block: &'a [f64],
    stride: usize,
    start: usize,
    lines: &'a mut [f64],
    width: usize,
}

impl Kernel<f64> for Panel<'_> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        f64: Lane<S>,
    {
        let Self { block, stride, start, lines, width } = self;
        let n_vectors = width / S::F64_LANES;
        let (zero, minus) = (simd.splat_f64s(0.0), simd.splat_f64s(-1.0));
        let lines = S::as_mut_simd_f64s(lines).0;
        let mut solved = Vec::with_capacity(block.len() / stride);
        for at in 0..n_vectors {
            // `solved` is a copy of the solved vectors, because successive lines may map to the same set of the cache.
            solved.clear();
            for (row, line) in block.chunks_exact(stride).zip(lines.chunks_exact_mut(n_vectors)) {
                let k = solved.len();
                let row = &row[start..=start + k];
                let mut sums = [zero; CHAINS];
                for (factors, known) in row.chunks(CHAINS).zip(solved.chunks(CHAINS)) {
                    for ((sum, factor), known) in sums.iter_mut().zip(factors).zip(known) {
                        *sum = simd.mul_add_e_f64s(simd.splat_f64s(*factor), *known, *sum);
                    }
                }
                let [first, second, third, fourth] = sums;
                let sum = simd.add_f64s(simd.add_f64s(first, second), simd.add_f64s(third, fourth));
                let rest = simd.mul_add_e_f64s(minus, sum, line[at]);
                line[at] = simd.mul_f64s(rest, simd.splat_f64s(1.0 / row[k]));
                solved.push(line[at]);
            }
        }
    }
}

struct Substitution<'a> {
    factor: &'a [f64],
    stride: usize,
    b: &'a mut [f64],
}

impl Kernel<f64> for Substitution<'_> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S) {
        let Self { factor, stride, b } = self;
        let (n, rows) = (b.len(), || factor.chunks_exact(stride));
        for (i, row) in rows().take(n).enumerate() {
            b[i] = (b[i] - product(simd, &row[..i], &b[..i])) / row[i];
        }
        for (i, row) in rows().take(n).enumerate().rev() {
            b[i] /= row[i];
            let solved = -b[i];
            let (own, own_rest) = S::as_mut_simd_f64s(&mut b[..i]);
            let (row, row_rest) = S::as_simd_f64s(&row[..i]);
            let by = simd.splat_f64s(solved);
            for (own, row) in own.iter_mut().zip(row) {
                *own = simd.mul_add_e_f64s(by, *row, *own);
            }
            own_rest.iter_mut().zip(row_rest).for_each(|(own, row)| *own += solved * row);
        }
    }
}
