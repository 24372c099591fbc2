//! The choice of how rows are stored.

use super::conjugate::FACTORISED;
use super::dense::BlockStore;
use super::entries::EntryStore;
use super::passes::RowPasses;
use crate::data::{Data, Rows};
use crate::for_data;
use crate::logistic::{LogisticProblem, is_sparse};

/// Sparse rows with at most one entry per this number of columns are stored without zeros.
const THIN: usize = 8;

/// Whether the Hessian has few enough rows to be factorised.
pub fn is_small(problem: &LogisticProblem<'_>) -> bool {
    problem.n_outputs() * width(problem) <= FACTORISED
}

/// Whether to store only the nonzero entries of the rows: for sparse rows that have few of them, or whose Hessian is
/// too large to factorise.
pub fn keeps_zeros_out(problem: &LogisticProblem<'_>) -> bool {
    let n_stored = for_data!(problem.rows(), rows => rows.n_stored());
    let is_thin = THIN * n_stored <= problem.n_examples() * width(problem);
    is_sparse(problem) && (is_thin || !is_small(problem))
}

/// Number of columns, the constant one included.
fn width(problem: &LogisticProblem<'_>) -> usize {
    problem.n_features() + usize::from(problem.intercept())
}

/// Stores the rows of a problem.
pub(super) fn stored<'a>(problem: &LogisticProblem<'a>) -> Box<dyn RowPasses + 'a> {
    match problem.rows() {
        Data::Csr32(rows) if keeps_zeros_out(problem) => Box::new(EntryStore::new(problem, rows)),
        Data::Csr64(rows) if keeps_zeros_out(problem) => Box::new(EntryStore::new(problem, rows)),
        _ => Box::new(BlockStore::new(problem)),
    }
}
