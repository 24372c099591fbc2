//! Rows and weights together: what block descent asks of dense and of sparse data.

use pulp::Simd;

use super::kernels::{AddFew, ScoreFew};
pub(super) use super::row::GatheredRows;
use super::row::{Row, extend, read};
use crate::data::{Dense, Real, Rows, in_precision};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Aligned, Element, Kernel, Lane, PanelWeights, Update};

/// The change of the scores' duals that a block made, one row (padded classes) for each example.
#[derive(Debug)]
pub(super) struct Changes<T> {
    pub values: Aligned<T>,
    /// The examples whose dual changed.
    pub changed: Vec<usize>,
}

impl<T: Real> Changes<T> {
    pub fn new(n_rows: usize, padded: usize) -> Self {
        let values = Aligned::zeros(n_rows * padded);
        Self { values, changed: Vec::new() }
    }
}

/// Rows and the weights that score them.
pub(super) trait Scorer: Send + Sync {
    type Value: Element;

    /// Whether these are in double precision.
    const IS_DOUBLE: bool = size_of::<Self::Value>() == size_of::<f64>();

    /// The model of the same rows in double precision.
    type Exact: Scorer<Value = f64>;

    /// That model with weights of zero, where the precision is not double already.
    fn exact(&self) -> Option<Self::Exact>;

    /// How many examples can be treated together.
    const LARGEST_BLOCK: usize;

    /// How many examples are worth treating together.
    fn block_size(&self) -> usize;

    /// Share of all (example, class) pairs among the candidates from which a pass over all classes is worth its time: it
    /// takes less for each pair, and leaves none out.
    fn full_share(&self) -> f64 {
        0.2
    }

    /// Number of features, the constant one included.
    fn n_features(&self) -> usize;

    /// Copies the rows of `block.examples` into the block.
    fn gather(&self, block: &mut GatheredRows<Self::Value>);

    /// Computes the block's inner products.
    fn multiply_rows(&self, block: &mut GatheredRows<Self::Value>);

    /// Adds the changes that the block made to the weights.
    fn update(&mut self, changes: &Changes<Self::Value>, block: &GatheredRows<Self::Value>);

    /// Adds the rows of examples to the weights, each times what `change` writes to a row of zeros (padded classes)
    /// for an index among the examples.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    fn add_rows(
        &mut self,
        examples: &[u32],
        change: impl Fn(usize, &mut [Self::Value]) + Sync,
        interrupt: &Interrupt,
    ) -> Result<()>;

    /// Writes the scores of the block's examples, which come in their order: for each panel of classes, row by
    /// row. Their rows are copied into the block only where they cannot be read in place.
    fn score(&self, block: &mut GatheredRows<Self::Value>, scores: &mut [Self::Value]);

    /// [`Scorer::update`] by one block, then the scores of the next.
    fn update_and_score(
        &mut self,
        changes: &Changes<Self::Value>,
        block: &GatheredRows<Self::Value>,
        next: &GatheredRows<Self::Value>,
        scores: &mut [Self::Value],
    );

    /// Number of classes with the padding.
    fn padded(&self) -> usize;

    /// Classes of a panel of scores; the last one's may be fewer.
    fn panel_width(&self) -> usize;

    /// Number of stored values of a row.
    fn n_stored(&self, example: usize) -> usize;

    /// The row of an example.
    fn row<'r>(&'r self, example: usize, buffer: &'r mut Vec<Self::Value>) -> Row<'r, Self::Value>;

    /// Hands out the weights in the order in which few classes of a row are scored fastest. Until they
    /// are given back with [`Scorer::give_weights`], nothing else may read them.
    fn take_weights(&mut self) -> Aligned<Self::Value>;

    /// The length of each class's weights where that order is class after class.
    fn class_stride(&self) -> Option<usize>;

    /// Takes back the weights of [`Scorer::take_weights`].
    fn give_weights(&mut self, weights: Aligned<Self::Value>);

    /// Scores of a row for some classes, by weights in the order of [`Scorer::take_weights`].
    fn score_few<S: Simd>(
        &self,
        simd: S,
        weights: &[Self::Value],
        row: Row<'_, Self::Value>,
        classes: &[u32],
        scores: &mut [Self::Value],
    ) where
        Self::Value: Lane<S>;

    /// Adds `change` times the row to the weights of some classes.
    fn add_few<S: Simd>(
        &self,
        simd: S,
        weights: &mut [Self::Value],
        row: Row<'_, Self::Value>,
        classes: &[u32],
        change: &[Self::Value],
    ) where
        Self::Value: Lane<S>;

    /// Writes the weights to `by_class`, class after class, the constant feature's last.
    fn copy_by_class(&self, by_class: &mut Vec<f64>);

    /// All weights in some order.
    fn weights(&self) -> &[Self::Value];

    /// Sets the weights to those given class after class.
    fn load(&mut self, by_class: &[f64]);

    /// Sets the weights to those of the model in double precision.
    fn narrow(&mut self, exact: &Self::Exact);

    /// Sets all weights to 0.
    fn clear(&mut self);

    /// Sets the weights to w₀, class after class; to 0 if that is empty.
    fn begin_at(&mut self, origin: &[f64]) {
        match origin {
            [] => self.clear(),
            _ => self.load(origin),
        }
    }
}

/// The methods of a [`Scorer`] that are the same whatever its rows: what `Self::weights` knows, and what its bias says.
macro_rules! with_weights {
    () => {
        fn exact(&self) -> Option<Self::Exact> {
            (!Self::IS_DOUBLE).then(|| Self::Exact::new(self.rows, self.bias, self.n_classes))
        }

        fn n_features(&self) -> usize {
            self.rows.n_cols() + usize::from(self.bias != 0.0)
        }

        fn padded(&self) -> usize {
            self.weights.padded()
        }

        fn copy_by_class(&self, by_class: &mut Vec<f64>) {
            self.weights.copy_by_class(self.n_classes, by_class);
        }

        fn weights(&self) -> &[Self::Value] {
            self.weights.values()
        }

        fn load(&mut self, by_class: &[f64]) {
            self.weights.load(by_class);
        }

        fn narrow(&mut self, exact: &Self::Exact) {
            self.weights.narrow(&exact.weights);
        }

        fn clear(&mut self) {
            self.weights.clear();
        }
    };
}
pub(super) use with_weights;

/// Examples whose rows are added together: they stay in the second-level cache, and each weight is read and
/// written once for all of them.
const TOGETHER: usize = 64;

/// Dense rows of one precision, weights of another.
pub(super) struct DenseScorer<'a, R, T> {
    rows: Dense<'a, R>,
    bias: f64,
    /// Features of a row in whole vectors.
    n_whole: usize,
    /// A row's last vector with the constant feature alone, if there is one.
    constant: Vec<T>,
    weights: PanelWeights<T>,
    n_classes: usize,
}

impl<'a, R: Real, T: Element> DenseScorer<'a, R, T> {
    pub fn new(rows: Dense<'a, R>, bias: f64, n_classes: usize) -> Self {
        let n_features = rows.n_cols() + usize::from(bias != 0.0);
        let n_whole = rows.n_cols() / T::lanes() * T::lanes();
        let mut constant = Vec::new();
        if bias != 0.0 {
            constant.resize(T::lanes(), T::zero());
            constant[rows.n_cols() - n_whole] = T::narrow(bias);
        }
        let weights = PanelWeights::new(n_features, n_classes);
        Self { rows, bias, n_whole, constant, weights, n_classes }
    }

    /// The rows of examples that lie side by side, without the constant feature, where they are stored in the
    /// precision of the weights.
    fn in_place(&self, examples: &[u32]) -> Option<&'a [T]> {
        let (first, last) = (*examples.first()? as usize, *examples.last()? as usize);
        let side_by_side = last - first + 1 == examples.len();
        in_precision(self.rows.block(first, last + 1)).filter(|_| side_by_side)
    }
}

fn as_update<'a, T: Element>(changes: &'a Changes<T>, block: &'a GatheredRows<T>) -> Update<'a, T> {
    Update { rows: &block.values, changes: &changes.values, changed: &changes.changed }
}

impl<'a, R: Real, T: Element> Scorer for DenseScorer<'a, R, T> {
    type Value = T;
    type Exact = DenseScorer<'a, R, f64>;

    with_weights!();

    const LARGEST_BLOCK: usize = 256;

    fn block_size(&self) -> usize {
        // The work that a block adds for b examples, inner products and corrections, is b/4 (1/m + 1/d)
        // of the two products'.
        let (d, m) = (self.weights.n_features() as f64, self.n_classes as f64);
        ((d * m / (d + m)) as usize / 2 / 8 * 8).clamp(8, 48)
    }

    fn gather(&self, block: &mut GatheredRows<T>) {
        block.values.clear();
        for &example in &block.examples {
            extend(&mut block.values, self.rows.row(example as usize));
            if self.bias != 0.0 {
                block.values.push(T::narrow(self.bias));
            }
        }
    }

    fn multiply_rows(&self, block: &mut GatheredRows<T>) {
        let n = block.examples.len();
        block.gram.resize(n * n, T::zero());
        T::dispatch(super::kernels::InnerProducts {
            rows: &block.values,
            n_features: self.weights.n_features(),
            products: &mut block.gram,
        });
    }

    fn update(&mut self, changes: &Changes<T>, block: &GatheredRows<T>) {
        self.weights.update(&as_update(changes, block));
    }

    fn add_rows(
        &mut self,
        examples: &[u32],
        change: impl Fn(usize, &mut [T]) + Sync,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let padded = self.padded();
        let mut block = GatheredRows::default();
        let mut changes = Changes::new(TOGETHER, padded);
        for (piece, examples) in examples.chunks(TOGETHER).enumerate() {
            interrupt.check()?;
            block.examples.clear();
            block.examples.extend_from_slice(examples);
            self.gather(&mut block);
            changes.changed.clear();
            changes.changed.extend(0..examples.len());
            let rows = changes.values.chunks_exact_mut(padded);
            for (row, values) in rows.take(examples.len()).enumerate() {
                values.fill(T::zero());
                change(piece * TOGETHER + row, values);
            }
            self.update(&changes, &block);
        }
        Ok(())
    }

    fn score(&self, block: &mut GatheredRows<T>, scores: &mut [T]) {
        match self.in_place(&block.examples) {
            Some(rows) => {
                let constant = (self.bias != 0.0).then(|| T::narrow(self.bias));
                self.weights.score(rows, constant, scores);
            }
            None => {
                self.gather(block);
                self.weights.score(&block.values, None, scores);
            }
        }
    }

    fn update_and_score(
        &mut self,
        changes: &Changes<T>,
        block: &GatheredRows<T>,
        next: &GatheredRows<T>,
        scores: &mut [T],
    ) {
        self.weights.update_and_score(&as_update(changes, block), &next.values, scores);
    }

    fn panel_width(&self) -> usize {
        self.weights.width()
    }

    fn n_stored(&self, _: usize) -> usize {
        self.n_features()
    }

    #[inline(always)]
    fn row<'r>(&'r self, example: usize, buffer: &'r mut Vec<T>) -> Row<'r, T> {
        let x = read(buffer, self.rows.row(example));
        let (values, rest) = x.split_at(self.n_whole);
        Row { values, columns: &[], rest, constant: &self.constant }
    }

    fn take_weights(&mut self) -> Aligned<T> {
        // Class after class, each as long as a padded row.
        let stride = self.n_features().next_multiple_of(T::lanes());
        let mut weights = Aligned::zeros(self.n_classes * stride);
        for (class, row) in weights.chunks_exact_mut(stride).enumerate() {
            self.weights.copy_class(class, row);
        }
        weights
    }

    fn class_stride(&self) -> Option<usize> {
        Some(self.n_features().next_multiple_of(T::lanes()))
    }

    fn give_weights(&mut self, weights: Aligned<T>) {
        let stride = self.n_features().next_multiple_of(T::lanes());
        for (class, row) in weights.chunks_exact(stride).enumerate() {
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
        ScoreFew { weights, row, classes, scores }.compute(simd);
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
        AddFew { weights, row, classes, change }.compute(simd);
    }
}
