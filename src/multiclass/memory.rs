//! The memory of linear fits.

use super::{JointMap, MulticlassMethod, ScoreMap};
use crate::data::Data;
use crate::error::Result;
use crate::memory::require;
use crate::solver::Method;

/// Refuses a fit whose weights and dual variables do not fit into memory.
///
/// The estimate, for n rows of m classes and d features, the constant one included: the weights, d m
/// numbers of 8 bytes with the classes rounded up to whole vectors of 64 bytes, once in block descent
/// (twice for rows in single precision, whose certificate needs exact ones) and three times elsewhere; the
/// result, twice; n m dual variables in block descent, in the precision of the rows, and in smoothed
/// Frank-Wolfe; and 16 n m bytes where the caller wants them back. Active sets grow with the run and are
/// not in it. `n_fits` of them run side by side.
///
/// # Errors
/// [`Error::Memory`](crate::error::Error::Memory) if there is not as much.
pub fn require_memory(
    data: Data<'_>,
    n_classes: usize,
    method: MulticlassMethod,
    smooth: bool,
    keep_dual: bool,
    n_fits: usize,
) -> Result<()> {
    let value: usize = match data {
        Data::Dense32(_) | Data::Csr32(_) => 4,
        Data::Dense64(_) | Data::Csr64(_) => 8,
    };
    let wide = |number: usize| number as u128;
    let (n, d, m) = (data.n_rows(), data.n_cols() + 1, n_classes);
    let padded = m.checked_next_multiple_of(64 / value).unwrap_or(m);
    let copies = match method {
        MulticlassMethod::BlockDescent(_) => 1 + usize::from(value == 4),
        MulticlassMethod::Vertices(_) => 3,
    };
    let weights = wide(d) * (wide(copies * 8) * wide(padded) + 16 * wide(m));
    let dual = match method {
        MulticlassMethod::BlockDescent(_) => value,
        MulticlassMethod::Vertices(Method::FrankWolfe(_) | Method::ProjectedGradient) if smooth => {
            8
        }
        MulticlassMethod::Vertices(_) => 0,
    };
    let dual = dual + if keep_dual { 16 } else { 0 };
    let what = || {
        let duals = if dual > 0 { "the dual variables and " } else { "" };
        format!("{duals}the weights for n = {n} rows, m = {m} classes and d = {d} features")
    };
    let remedy = if dual > 0 {
        "solver=\"block-frank-wolfe\" keeps only dual variables that are not 0; float32 rows, fewer \
         rows, fewer features or fewer classes take less"
    } else {
        "fewer features or fewer classes take less"
    };
    require(wide(n_fits) * (weights + wide(n) * wide(m) * wide(dual)), what, remedy)
}

/// The same for joint features: the weights four times, as a solver, its kernels, its certificate and the
/// caller have them, and dual variables for n rows and m classes in smoothed Frank-Wolfe; those of block descent
/// are few and grow with the run.
///
/// # Errors
/// [`Error::Memory`](crate::error::Error::Memory) if there is not as much.
pub fn require_joint_memory(
    map: &JointMap<'_>,
    method: MulticlassMethod,
    smooth: bool,
) -> Result<()> {
    let (n, m, d) = (map.n_examples(), map.n_classes(), map.n_weights());
    let kept = matches!(
        method,
        MulticlassMethod::Vertices(Method::FrankWolfe(_) | Method::ProjectedGradient)
    );
    let kept = smooth && kept;
    let duals = if kept { 8 * n as u128 * m as u128 } else { 0 };
    let what = || format!("d = {d} weights, for n = {n} rows and m = {m} classes");
    require(32 * d as u128 + duals, what, "fewer features of rows or classes take less")
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::data::Dense;

    #[test]
    fn fits_side_by_side_need_as_much_each() {
        let rows = array![[1.0], [2.0]];
        let data = Data::Dense64(Dense::new(rows.view()).unwrap());
        let fits = |n| require_memory(data, 3, MulticlassMethod::BlockDescent(0), false, false, n);
        fits(1).unwrap();
        let error = fits(usize::MAX).unwrap_err().to_string();
        assert!(error.contains("n = 2 rows, m = 3 classes and d = 2 features need"), "{error}");
    }
}
