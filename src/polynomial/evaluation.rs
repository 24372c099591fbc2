//! Passes over the rows that compute outputs, objective and gradient.
//!
//! A block of rows [x, 1] is multiplied by [H, W], then by U, and the residuals pass back through U and [H, W]. The
//! products of a block stay in the caches, and the next block reuses their memory. The letters are those of
//! docs/mathematics/polynomial-networks.md:
//!
//! | letter | in the code | meaning |
//! |---|---|---|
//! | H, U, W | `basis`, `output`, `linear` | the layers |
//! | k, m | `k`, `m` | basis vectors, outputs |
//! | p = \[x, 1\] \[H, W\] | `products` | products of a row, `width` = k (+ m) of them |
//! | q_r = Σ_j h_jr² x_j² | `squares` | the terms that ANOVA subtracts |
//! | z_r = K(h_r, x) | `activations` | activations of a row |
//! | R | `residuals` | ∂F/∂O |
//! | t = R Uᵀ | `back` | residuals propagated back to the basis |

use super::kernel::PolynomialKernel;
use super::model::PolynomialModel;
use super::problem::PolynomialProblem;
use super::row_block::{BLOCK_ROWS, OuterSum, RowBlock, row_blocks};
use super::sparse_columns::ColumnBlock;
use crate::data::{Data, Rows};
use crate::error::{Error, Result};
use crate::for_data;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::axpy;
use crate::linalg::{Element, Panels};
use crate::parallel::{fill_and_sum, fill_blocks, sum_rows};

/// The outputs o(x) of every row, n × m. Products are computed in the precision of the rows, or in
/// double precision if the model or its outputs require it.
///
/// # Errors
/// [`Error::Numerical`] if an output is not finite.
pub fn predict(model: &PolynomialModel, data: Data<'_>, interrupt: &Interrupt) -> Result<Vec<f64>> {
    let finite = |outputs: &Vec<f64>| outputs.iter().all(|output| output.is_finite());
    if fits_single(model) {
        let outputs = match data {
            Data::Dense16(rows) => Some(outputs::<f32>(model, &rows, interrupt)?),
            Data::Dense32(rows) => Some(outputs::<f32>(model, &rows, interrupt)?),
            Data::Csr32(rows) => Some(outputs::<f32>(model, &rows, interrupt)?),
            Data::Dense64(_) | Data::Csr64(_) => None,
        };
        if let Some(outputs) = outputs.filter(finite) {
            return Ok(outputs);
        }
    }
    let outputs = for_data!(data, rows => outputs::<f64>(model, &rows, interrupt)?);
    if finite(&outputs) {
        return Ok(outputs);
    }
    let message = "an output exceeds the largest double-precision number; scale the rows";
    Err(Error::Numerical(message.into()))
}

/// Whether single precision is accurate enough for these weights and does not overflow.
fn fits_single(model: &PolynomialModel) -> bool {
    let layers = [Some(&model.output), model.linear.as_ref()];
    let largest = |layer: &Vec<f64>| layer.iter().map(|w| w.abs()).fold(0.0, f64::max);
    layers.into_iter().flatten().map(largest).all(|w| w == 0.0 || (1e-25..1e25).contains(&w))
}

/// The outputs o(x) of every row, n × m, with products in the precision of `T`.
pub fn outputs<T: Element>(
    model: &PolynomialModel,
    rows: &impl Rows,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    let m = model.n_outputs;
    let layers = PackedLayers::<T>::new(model);
    let mut outputs = vec![0.0; rows.n_rows() * m];
    fill_blocks(&mut outputs, m, interrupt, |range, outputs| {
        let (mut block, mut values) = (RowBlock::new(rows), Values::default());
        for (range, outputs) in row_blocks(range).zip(outputs.chunks_mut(BLOCK_ROWS * m)) {
            block.load(rows, range);
            layers.forward(&block, &mut values, outputs);
        }
    })?;
    Ok(outputs)
}

/// The derivatives of the objective with respect to the outputs, and the largest outputs.
#[derive(Debug)]
pub struct Residuals {
    /// The derivatives ∂F/∂O, n × m.
    pub values: Vec<f64>,
    /// The largest absolute output max_c |o_ic| of each row.
    pub output_sizes: Vec<f64>,
}

/// Computes the residuals of a model.
pub fn residuals<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &PolynomialModel,
    interrupt: &Interrupt,
) -> Result<Residuals> {
    let mut outputs = outputs::<f64>(model, &problem.rows, interrupt)?;
    let m = model.n_outputs;
    let largest = |row: &[f64]| row.iter().map(|o| o.abs()).fold(0.0, f64::max);
    let output_sizes = outputs.chunks_exact(m).map(largest).collect();
    fill_blocks(&mut outputs, m, interrupt, |range, outputs| {
        let mut residual = vec![0.0; m];
        for (row, outputs) in range.zip(outputs.chunks_exact_mut(m)) {
            problem.row_loss(row, outputs, &mut residual);
            outputs.copy_from_slice(&residual);
        }
    })?;
    Ok(Residuals { values: outputs, output_sizes })
}

/// The objective of a model, and its gradient.
#[derive(Debug)]
pub struct Evaluation {
    /// The objective Σ_i s_i ℓ(y_i, o_i) + α/2 ‖W‖².
    pub objective: f64,
    /// The derivatives ∂F/∂H, with a row per feature like the basis; empty unless requested.
    pub basis: Vec<f64>,
    /// The derivatives ∂F/∂U = Zᵀ R, k × m.
    pub output: Vec<f64>,
    /// The derivatives ∂F/∂W = [X, 1]ᵀ R + α W; empty without linear terms.
    pub linear: Vec<f64>,
}

/// Evaluates `model`. If `basis` is true, also computes ∂F/∂H: Σ_i x_ij t_ir 2 p_ir for the square
/// kernel and Σ_i x_ij t_ir (p_ir − x_ij h_jr) for ANOVA, with p = X H and t = R Uᵀ
/// (docs/mathematics/polynomial-networks.md#gradient-matrices).
pub fn evaluate<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &PolynomialModel,
    basis: bool,
    interrupt: &Interrupt,
) -> Result<Evaluation> {
    let pass = Pass::new(problem, model, basis);
    let sizes = if problem.columns.is_some() { [0, 0, pass.sizes[2]] } else { pass.sizes };
    let (n, size) = (problem.rows.n_rows(), sizes.iter().sum::<usize>() + 1);
    let Some(columns) = &problem.columns else {
        let sums = sum_rows(n, size, interrupt, |range, sums| {
            pass.add_blocks(row_blocks(range), (sums, sizes), &mut []);
        })?;
        return Ok(pass.evaluation(&sums[..sizes[0]], &sums[sizes[0]..]));
    };
    let stride = pass.stride();
    let mut changes = vec![0.0; n * stride];
    let mut sums = fill_and_sum(&mut changes, (n, stride), size, interrupt, |range, out, sums| {
        pass.add_blocks(row_blocks(range), (sums, sizes), out);
    })?;
    let part = |first, width| ColumnBlock { values: &changes, stride, first, width };
    let n_inputs = pass.layers.n_inputs;
    let first = columns.multiply(n_inputs, part(0, pass.first_width), false, interrupt)?;
    let width = stride - pass.first_width;
    let mut rest = columns.multiply(n_inputs, part(pass.first_width, width), true, interrupt)?;
    rest.append(&mut sums);
    Ok(pass.evaluation(&first, &rest))
}

/// An unbiased estimate of [`evaluate`], from at most [`BLOCK_ROWS`] random rows.
pub(super) fn batch_gradient<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &PolynomialModel,
    basis: bool,
    rows: impl ExactSizeIterator<Item = usize> + Clone,
) -> Evaluation {
    let pass = Pass::new(problem, model, basis);
    let sizes = pass.sizes;
    let mut sums = vec![0.0; sizes.iter().sum::<usize>() + 1];
    let share = problem.rows.n_rows() as f64 / rows.len() as f64;
    pass.add_blocks(std::iter::once(rows), (&mut sums, sizes), &mut []);
    sums.iter_mut().for_each(|sum| *sum *= share);
    pass.evaluation(&sums[..sizes[0]], &sums[sizes[0]..])
}

/// One pass over the rows that adds up the objective and the gradient.
struct Pass<'a, R> {
    problem: &'a PolynomialProblem<'a, R>,
    model: &'a PolynomialModel,
    layers: PackedLayers<f64>,
    /// Output weights, transposed.
    transposed: Panels<f64>,
    /// Whether to compute the derivative ∂F/∂H with respect to the basis.
    basis: bool,
    /// Number of columns of [∂H, ∂W], or of ∂W alone if ∂H is not requested.
    first_width: usize,
    /// Lengths of the three sums: [∂H, ∂W]; Σ_i x_ij² t_ir (only for ANOVA); and ∂U followed by the
    /// total loss.
    sizes: [usize; 3],
}

impl<'a, R: Rows + Copy> Pass<'a, R> {
    fn new(problem: &'a PolynomialProblem<'a, R>, model: &'a PolynomialModel, basis: bool) -> Self {
        let layers = PackedLayers::<f64>::new(model);
        let PackedLayers { n_inputs, k, m, width, .. } = layers;
        let mut transposed = Panels::new(m, k);
        transposed.pack(&model.output, |c| c, m);
        let first_width = if basis { width } else { width - k };
        let squares_width = if basis && model.kernel == PolynomialKernel::Anova { k } else { 0 };
        let sizes = [n_inputs * first_width, n_inputs * squares_width, k * m];
        Self { problem, model, layers, transposed, basis, first_width, sizes }
    }

    /// Number of factors per row, for the sums of [∂H, ∂W] and, with ANOVA, for Σ_i x_ij² t_ir.
    fn stride(&self) -> usize {
        self.first_width + if self.sizes[1] > 0 { self.layers.k } else { 0 }
    }

    /// Adds blocks of rows to the sums, whose lengths are `sizes`. Also writes the factors of each
    /// row to `changes`, unless that is empty.
    fn add_blocks<I>(
        &self,
        blocks: impl Iterator<Item = I>,
        (sums, sizes): (&mut [f64], [usize; 3]),
        changes: &mut [f64],
    ) where
        I: ExactSizeIterator<Item = usize> + Clone,
    {
        let PackedLayers { k, m, .. } = self.layers;
        let rows = &self.problem.rows;
        let (first, sums) = sums.split_at_mut(sizes[0]);
        let (squares, sums) = sums.split_at_mut(sizes[1]);
        let (output, loss) = sums.split_at_mut(sizes[2]);
        let mut first = OuterSum::new(first, self.first_width);
        let mut squares = OuterSum::new(squares, k);
        let mut output = OuterSum::new(output, m);
        let (mut block, mut values) = (RowBlock::new(rows), Values::default());
        let (mut outputs, mut residuals) = (vec![0.0; BLOCK_ROWS * m], vec![0.0; BLOCK_ROWS * m]);
        let mut back = vec![0.0; BLOCK_ROWS * k];
        let (mut changes, stride) = (changes, self.stride());
        for wanted in blocks {
            let n = wanted.len();
            block.load(rows, wanted.clone());
            self.layers.forward(&block, &mut values, &mut outputs[..n * m]);
            let each = outputs.chunks_exact(m).zip(residuals.chunks_exact_mut(m));
            for (row, (outputs, residual)) in wanted.zip(each) {
                loss[0] += self.problem.row_loss(row, outputs, residual);
            }
            output.add_dense(&values.activations, k, |row, out| {
                out.copy_from_slice(&residuals[row * m..][..m])
            });
            if self.basis {
                back.fill(0.0);
                self.transposed.add_scores(&residuals[..n * m], &mut back[..n * k]);
            }
            first.add(&block, |row, out| {
                self.first_change(row, (&back, &values.products, &residuals), out);
            });
            if sizes[1] > 0 {
                squares
                    .add(&block.squared(), |row, out| out.copy_from_slice(&back[row * k..][..k]));
            }
            let (now, later) = changes.split_at_mut((n * stride).min(changes.len()));
            for (row, out) in now.chunks_exact_mut(stride.max(1)).enumerate() {
                let (first, squares) = out.split_at_mut(self.first_width);
                self.first_change(row, (&back, &values.products, &residuals), first);
                squares.copy_from_slice(&back[row * k..][..squares.len()]);
            }
            changes = later;
        }
    }

    /// Writes to `out` the factors by which a row of the block is multiplied in the sums for [∂H, ∂W].
    #[inline(always)]
    fn first_change(
        &self,
        row: usize,
        (back, products, residuals): (&[f64], &[f64], &[f64]),
        out: &mut [f64],
    ) {
        let PackedLayers { k, m, width, .. } = self.layers;
        let (to_basis, to_linear) = out.split_at_mut(if self.basis { k } else { 0 });
        let terms = back[row * k..].iter().zip(&products[row * width..]);
        let square = self.model.kernel == PolynomialKernel::Square;
        for (out, (t, p)) in to_basis.iter_mut().zip(terms) {
            *out = if square { 2.0 * t * p } else { t * p };
        }
        to_linear.copy_from_slice(&residuals[row * m..][..to_linear.len()]);
    }

    /// Builds the evaluation from the sums, and adds the terms that do not depend on rows.
    fn evaluation(&self, first: &[f64], rest: &[f64]) -> Evaluation {
        let (problem, model) = (self.problem, self.model);
        let (squares, rest) = rest.split_at(self.sizes[1]);
        let (output, loss) = rest.split_at(self.sizes[2]);
        let mut evaluation = Evaluation {
            objective: loss[0] + problem.ridge_value(model.linear.as_deref()),
            basis: Vec::new(),
            output: output.to_vec(),
            linear: Vec::new(),
        };
        let to_basis = if self.basis { self.layers.k } else { 0 };
        for sums in first.chunks_exact(self.first_width.max(1)) {
            evaluation.basis.extend_from_slice(&sums[..to_basis]);
            evaluation.linear.extend_from_slice(&sums[to_basis..]);
        }
        // The basis has a row for the constant feature only if the model is augmented.
        evaluation.basis.truncate(if self.basis { model.basis.len() } else { 0 });
        for ((g, q), h) in evaluation.basis.iter_mut().zip(squares).zip(&model.basis) {
            *g -= q * h;
        }
        if let (Some(ridge), Some(linear)) = (problem.objective.ridge, &model.linear) {
            axpy(&mut evaluation.linear, ridge, linear);
        }
        evaluation
    }
}

/// Intermediate values of a block.
#[derive(Debug)]
pub(super) struct Values<T> {
    /// Products [H, W]ᵀ [x, 1] of each row x with the basis vectors and the linear weights.
    products: Vec<f64>,
    /// Kernel values K(h_r, x) of each row x and basis vector h_r.
    pub(super) activations: Vec<T>,
    /// Sums Σ_j h_j² x_j², which the ANOVA kernel needs.
    squares: Vec<f64>,
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self { products: Vec::new(), activations: Vec::new(), squares: Vec::new() }
    }
}

/// A model packed for products.
pub(super) struct PackedLayers<T> {
    n_inputs: usize,
    k: usize,
    m: usize,
    /// Number of columns of [H, W].
    width: usize,
    first: Panels<T>,
    /// Squares of the basis entries, for the ANOVA kernel.
    squares: Option<Panels<T>>,
    output: Panels<T>,
}

impl<T: Element> PackedLayers<T> {
    pub(super) fn new(model: &PolynomialModel) -> Self {
        let (n_inputs, k, m) = (model.n_features + 1, model.n_bases, model.n_outputs);
        let width = k + if model.linear.is_some() { m } else { 0 };
        let mut both = vec![0.0; n_inputs * width];
        for (to, h) in both.chunks_exact_mut(width.max(1)).zip(model.basis.chunks_exact(k.max(1))) {
            to[..k].copy_from_slice(h);
        }
        let linear = model.linear.iter().flat_map(|linear| linear.chunks_exact(m));
        for (to, w) in both.chunks_exact_mut(width.max(1)).zip(linear) {
            to[k..].copy_from_slice(w);
        }
        let squares = (model.kernel == PolynomialKernel::Anova).then(|| {
            let mut squares = vec![0.0; n_inputs * k];
            for (to, h) in squares.iter_mut().zip(&model.basis) {
                *to = h * h;
            }
            packed(&squares, n_inputs, k)
        });
        let first = packed(&both, n_inputs, width);
        Self { n_inputs, k, m, width, first, squares, output: packed(&model.output, k, m) }
    }

    /// Writes the outputs of a block's rows to `outputs`.
    pub(super) fn forward(&self, block: &RowBlock<T>, values: &mut Values<T>, outputs: &mut [f64]) {
        let (k, m, width) = (self.k, self.m, self.width);
        let n = outputs.len() / m;
        let Values { products, activations, squares } = values;
        products.clear();
        products.resize(n * width, 0.0);
        block.add_product(&self.first, width, products);
        activations.clear();
        match &self.squares {
            None => {
                for products in products.chunks_exact(width.max(1)) {
                    activations.extend(products[..k].iter().map(|p| T::narrow(p * p)));
                }
            }
            Some(panels) => {
                squares.clear();
                squares.resize(n * k, 0.0);
                block.squared().add_product(panels, k, squares);
                let each = products.chunks_exact(width.max(1)).zip(squares.chunks_exact(k.max(1)));
                for (products, squares) in each {
                    let pairs = products.iter().zip(squares);
                    activations.extend(pairs.map(|(p, q)| T::narrow(0.5 * (p * p - q))));
                }
            }
        }
        outputs.fill(0.0);
        if width > k {
            for (out, products) in outputs.chunks_exact_mut(m).zip(products.chunks_exact(width)) {
                out.copy_from_slice(&products[k..]);
            }
        }
        self.output.add_scores(activations, outputs);
    }
}

fn packed<T: Element>(weights: &[f64], n_inputs: usize, n_outputs: usize) -> Panels<T> {
    let mut panels = Panels::new(n_inputs, n_outputs);
    panels.pack(weights, |input| input * n_outputs, 1);
    panels
}
