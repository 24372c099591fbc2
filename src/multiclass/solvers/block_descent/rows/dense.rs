//! Dense rows, with weights stored in panels of classes or, for visits to few classes, class by class.

use pulp::Simd;

use super::{Row, Shape, WeightStore};
use crate::data::{Dense, Real, Rows, in_precision, read_in};
use crate::interrupt::Interrupt;
use crate::linalg::vectors::fused_dot;
use crate::linalg::{Aligned, Element, Kernel, Lane, PanelWeights, Update};

/// Number of examples whose rows are added together: the rows stay in the second-level cache, and each weight is read
/// and written once for all of these rows.
const TOGETHER: usize = 64;
/// Number of score vectors that are corrected in registers at a time.
const VECTORS: usize = 4;

/// Dense rows in precision R with weights in precision T.
pub(in super::super) struct DenseStore<'a, R, T> {
    rows: Dense<'a, R>,
    bias: f64,
    /// Number of features of a row that fill full SIMD vectors.
    n_whole: usize,
    /// The last vector of a row, 0 except for the constant feature; empty if there is no constant feature.
    constant: Vec<T>,
    weights: PanelWeights<T>,
    n_classes: usize,
    /// The block of rows that are scored together.
    block: Block<T>,
    /// The scores of the block's rows at its beginning.
    scores: Vec<T>,
    /// A buffer for the rows of the next block.
    spare: Vec<T>,
}

/// Copies of rows x_i, with changes x_i δ_iᵀ to the weights.
struct Block<T> {
    /// The rows, the constant feature appended.
    rows: Vec<T>,
    /// The rows' inner products with the rows before them and with themselves (b × b).
    gram: Vec<T>,
    /// δ_i of each row, with the classes padded.
    changes: Aligned<T>,
    /// The indices of the rows for which δ_i is set.
    changed: Vec<usize>,
}

impl<T: Element> Block<T> {
    fn new() -> Self {
        let (rows, gram, changed) = (Vec::new(), Vec::new(), Vec::new());
        Self { rows, gram, changes: Aligned::zeros(0), changed }
    }

    /// Sets δ_i of a row for the given classes, and to 0 for all other classes.
    #[inline(always)]
    fn set_change(&mut self, (row, padded): (usize, usize), classes: &[u32], change: &[T]) {
        let own = &mut self.changes[row * padded..][..padded];
        own.fill(T::zero());
        for (class, change) in classes.iter().zip(change) {
            own[*class as usize] = *change;
        }
        self.changed.push(row);
    }

    fn as_update(&self) -> Update<'_, T> {
        Update { rows: &self.rows, changes: &self.changes, changed: &self.changed }
    }
}

impl<'a, R: Real, T: Element> DenseStore<'a, R, T> {
    /// Creates the store with weights of zero.
    pub fn new(rows: Dense<'a, R>, bias: f64, n_classes: usize) -> Self {
        let n_features = rows.n_cols() + usize::from(bias != 0.0);
        let n_whole = rows.n_cols() / T::lanes() * T::lanes();
        let mut constant = Vec::new();
        if bias != 0.0 {
            constant.resize(T::lanes(), T::zero());
            constant[rows.n_cols() - n_whole] = T::narrow(bias);
        }
        let weights = PanelWeights::new(n_features, n_classes);
        let (block, scores, spare) = (Block::new(), Vec::new(), Vec::new());
        Self { rows, bias, n_whole, constant, weights, n_classes, block, scores, spare }
    }

    /// Returns the rows of the examples without the constant feature, if the examples are neighbours and their rows are
    /// stored in the precision of the weights.
    fn in_place(&self, examples: &[u32]) -> Option<&'a [T]> {
        let (first, last) = (*examples.first()? as usize, *examples.last()? as usize);
        let are_neighbours = last - first + 1 == examples.len();
        in_precision(self.rows.block(first, last + 1)).filter(|_| are_neighbours)
    }

    /// Copies the rows of examples.
    fn gather(&self, examples: &[u32], rows: &mut Vec<T>) {
        rows.clear();
        for &example in examples {
            let row = self.rows.row(example as usize);
            match in_precision(row) {
                Some(row) => rows.extend_from_slice(row),
                None => R::append_to(row, rows),
            }
            if self.bias != 0.0 {
                rows.push(T::narrow(self.bias));
            }
        }
    }

    /// Copies the scores of a row for all padded classes. They are stored in panels of classes, and row by row inside
    /// each panel.
    #[inline(always)]
    fn copy_row(&self, panels: &[T], row: usize, scores: &mut [T]) {
        let (width, n_rows) = (self.weights.width(), panels.len() / scores.len());
        for (index, scores) in scores.chunks_mut(width).enumerate() {
            let start = index * width * n_rows + row * scores.len();
            scores.copy_from_slice(&panels[start..][..scores.len()]);
        }
    }

    /// The length of a class's weights in [`WeightStore::take_weights`].
    fn stride(&self) -> usize {
        self.weights.n_features().next_multiple_of(T::lanes())
    }
}

impl<'a, R: Real, T: Element> WeightStore for DenseStore<'a, R, T> {
    type Value = T;
    type Exact = DenseStore<'a, R, f64>;

    fn exact(&self) -> Option<Self::Exact> {
        (!Self::IS_DOUBLE).then(|| DenseStore::new(self.rows, self.bias, self.n_classes))
    }

    fn shape(&self) -> Shape {
        // For a block of b examples, the extra work for inner products and corrections is b/4 (1/m + 1/d) times the
        // work of computing scores and adding changes.
        let (d, m) = (self.weights.n_features() as f64, self.n_classes as f64);
        let block_size = ((d * m / (d + m)) as usize / 2 / 8 * 8).clamp(8, 48);
        Shape { padded: self.weights.padded(), block_size, largest_block: 256 }
    }

    #[inline(always)]
    fn row<'r>(&'r self, example: usize, buffer: &'r mut Vec<T>) -> Row<'r, T> {
        let x = read_in(self.rows.row(example), buffer);
        let (values, rest) = x.split_at(self.n_whole);
        Row { values, columns: &[], rest, constant: &self.constant }
    }

    fn take_weights(&mut self) -> Aligned<T> {
        let stride = self.stride();
        let mut weights = Aligned::zeros(self.n_classes * stride);
        for (class, row) in weights.chunks_exact_mut(stride).enumerate() {
            self.weights.copy_class(class, row);
        }
        weights
    }

    fn give_weights(&mut self, weights: Aligned<T>) {
        for (class, row) in weights.chunks_exact(self.stride()).enumerate() {
            self.weights.set_class(class, row);
        }
    }

    #[inline(always)]
    fn score_few<S: Simd>(
        &self,
        simd: S,
        weights: &[T],
        row: Row<'_, T>,
        classes: &[u32],
        scores: &mut [T],
    ) where
        T: Lane<S>,
    {
        let (whole, tail) = (T::vectors(row.values).0, row.tail(simd));
        let weights = T::vectors(weights).0;
        let stride = whole.len() + usize::from(tail.is_some());
        for (score, class) in scores.iter_mut().zip(classes) {
            let own = &weights[*class as usize * stride..][..stride];
            let (own, last) = own.split_at(whole.len());
            let mut sums = [T::splat(simd, T::zero()); 2];
            let (pairs, own_pairs) = (whole.as_chunks::<2>(), own.as_chunks::<2>());
            for (weights, x) in own_pairs.0.iter().zip(pairs.0) {
                sums[0] = T::fused(simd, weights[0], x[0], sums[0]);
                sums[1] = T::fused(simd, weights[1], x[1], sums[1]);
            }
            for (weight, x) in own_pairs.1.iter().zip(pairs.1) {
                sums[0] = T::fused(simd, *weight, *x, sums[0]);
            }
            if let (Some(weight), Some(x)) = (last.first(), tail) {
                sums[1] = T::fused(simd, *weight, x, sums[1]);
            }
            *score = T::total(simd, T::plus(simd, sums[0], sums[1]));
        }
    }

    #[inline(always)]
    fn add_few<S: Simd>(
        &self,
        simd: S,
        weights: &mut [T],
        row: Row<'_, T>,
        classes: &[u32],
        change: &[T],
    ) where
        T: Lane<S>,
    {
        let (whole, tail) = (T::vectors(row.values).0, row.tail(simd));
        let weights = T::vectors_mut(weights).0;
        let stride = whole.len() + usize::from(tail.is_some());
        for (change, class) in change.iter().zip(classes) {
            let change = T::splat(simd, *change);
            let weights = &mut weights[*class as usize * stride..][..stride];
            let (own, last) = weights.split_at_mut(whole.len());
            for (weight, x) in own.iter_mut().zip(whole) {
                *weight = T::fused(simd, change, *x, *weight);
            }
            if let (Some(weight), Some(x)) = (last.first_mut(), tail) {
                *weight = T::fused(simd, change, x, *weight);
            }
        }
    }

    fn begin_block(&mut self, examples: &[u32]) {
        if examples.is_empty() {
            self.weights.update(&self.block.as_update());
            return self.block.changed.clear();
        }
        let (n, padded) = (examples.len(), self.weights.padded());
        let mut rows = std::mem::take(&mut self.spare);
        self.gather(examples, &mut rows);
        self.scores.resize(n * padded, T::zero());
        self.weights.update_and_score(&self.block.as_update(), &rows, &mut self.scores);
        self.spare = std::mem::replace(&mut self.block.rows, rows);
        let Block { rows, gram, changes, changed } = &mut self.block;
        changed.clear();
        if changes.len() < n * padded {
            *changes = Aligned::zeros(n * padded);
        }
        gram.resize(n * n, T::zero());
        let n_features = self.weights.n_features();
        T::dispatch(InnerProducts { rows, n_features, products: gram });
    }

    #[inline(always)]
    fn score_row<S: Simd>(&self, simd: S, row: usize, _: &mut Vec<T>, scores: &mut [T])
    where
        T: Lane<S>,
    {
        self.copy_row(&self.scores, row, scores);
        let Block { gram, changes, changed, .. } = &self.block;
        let gram = &gram[row * self.scores.len() / scores.len()..];
        let stride = scores.len() / T::LANES;
        let (scores, changes) = (T::vectors_mut(scores).0, T::vectors(changes).0);
        let (mut first, rows) = (0, (gram, &changed[..]));
        let (wide, rest) = scores.as_chunks_mut::<VECTORS>();
        for scores in wide {
            correct::<S, T, VECTORS, 2>(simd, changes, (stride, first), rows, scores);
            first += VECTORS;
        }
        for scores in rest.as_chunks_mut::<1>().0 {
            correct::<S, T, 1, VECTORS>(simd, changes, (stride, first), rows, scores);
            first += 1;
        }
    }

    #[inline(always)]
    fn change_row<S: Simd>(
        &mut self,
        _: S,
        row: usize,
        _: &mut Vec<T>,
        (classes, change): (&[u32], &[T]),
    ) where
        T: Lane<S>,
    {
        self.block.set_change((row, self.weights.padded()), classes, change);
    }

    fn score(&self, examples: &[u32], [copies, panels]: &mut [Vec<T>; 2], scores: &mut [T]) {
        let (rows, constant) = match self.in_place(examples) {
            Some(rows) => (rows, (self.bias != 0.0).then(|| T::narrow(self.bias))),
            None => {
                self.gather(examples, copies);
                (&copies[..], None)
            }
        };
        let padded = self.weights.padded();
        if self.weights.width() == padded {
            return self.weights.score(rows, constant, scores);
        }
        panels.resize(scores.len(), T::zero());
        self.weights.score(rows, constant, panels);
        for (row, scores) in scores.chunks_exact_mut(padded).enumerate() {
            self.copy_row(panels, row, scores);
        }
    }

    fn add_rows(
        &mut self,
        examples: &[u32],
        change: impl Fn(usize, &mut Vec<u32>, &mut Vec<T>) + Sync,
        interrupt: &Interrupt,
    ) {
        let padded = self.weights.padded();
        let (mut classes, mut values) = (Vec::new(), Vec::new());
        let mut block = Block { changes: Aligned::zeros(TOGETHER * padded), ..Block::new() };
        for (piece, examples) in examples.chunks(TOGETHER).enumerate() {
            if interrupt.is_raised() {
                return;
            }
            self.gather(examples, &mut block.rows);
            block.changed.clear();
            for row in 0..examples.len() {
                classes.clear();
                values.clear();
                change(piece * TOGETHER + row, &mut classes, &mut values);
                block.set_change((row, padded), &classes, &values);
            }
            self.weights.update(&block.as_update());
        }
    }

    fn weights(&self) -> &[T] {
        self.weights.values()
    }

    fn copy_by_class(&self, by_class: &mut Vec<f64>) {
        self.weights.copy_by_class(self.n_classes, by_class);
    }

    fn load(&mut self, by_class: &[f64]) {
        match by_class {
            [] => self.weights.clear(),
            _ => self.weights.load(by_class),
        }
    }

    fn narrow(&mut self, exact: &Self::Exact) {
        self.weights.narrow(&exact.weights);
    }
}

/// The lower triangle of X Xᵀ.
struct InnerProducts<'a, T> {
    rows: &'a [T],
    n_features: usize,
    products: &'a mut [T],
}

impl<T: Element> Kernel<T> for InnerProducts<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let n = self.rows.len() / self.n_features;
        let row = |i: usize| &self.rows[i * self.n_features..][..self.n_features];
        for i in 0..n {
            for j in 0..=i {
                self.products[i * n + j] = fused_dot(simd, row(i), row(j));
            }
        }
    }
}

/// Adds V vectors of one change.
#[inline(always)]
fn add<S: Simd, T: Lane<S>, const V: usize>(
    simd: S,
    change: &[T::Vector],
    product: T,
    sums: &mut [T::Vector; V],
) {
    let product = T::splat(simd, product);
    for (sum, change) in sums.iter_mut().zip(&change[..V]) {
        *sum = T::fused(simd, product, *change, *sum);
    }
}

/// Corrects V vectors of scores. The changes are split over P separate sums, so that multiply-adds do not wait for each
/// other.
#[inline(always)]
fn correct<S: Simd, T: Lane<S>, const V: usize, const P: usize>(
    simd: S,
    changes: &[T::Vector],
    (stride, first): (usize, usize),
    (gram, changed): (&[T], &[usize]),
    out: &mut [T::Vector; V],
) {
    let mut sums = [[T::splat(simd, T::zero()); V]; P];
    sums[0] = *out;
    let (groups, rest) = changed.as_chunks::<P>();
    for rows in groups {
        for (sums, row) in sums.iter_mut().zip(rows) {
            add::<S, T, V>(simd, &changes[row * stride + first..], gram[*row], sums);
        }
    }
    for row in rest {
        add::<S, T, V>(simd, &changes[row * stride + first..], gram[*row], &mut sums[0]);
    }
    for (at, out) in out.iter_mut().enumerate() {
        *out = sums[1..].iter().fold(sums[0][at], |sum, other| T::plus(simd, sum, other[at]));
    }
}
