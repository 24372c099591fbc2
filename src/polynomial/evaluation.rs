//! Passes over the rows: outputs, objective and gradient, with nothing kept per row.
//!
//! A block of rows goes through [H, W] as one matrix on [x, 1], then through U, and back.

use super::kernel::Kernel;
use super::model::Model;
use super::problem::Problem;
use super::row_block::{BLOCK, Block, OuterSum, blocks};
use crate::data::Rows;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Element, Panels};
use crate::parallel::{fill_blocks, sum_rows};

/// o(x) of every row, n × m, with products in the precision of `T`.
pub fn outputs<T: Element>(
    model: &Model,
    rows: &impl Rows,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    let m = model.n_outputs;
    let layers = Layers::<T>::new(model);
    let mut outputs = vec![0.0; rows.n_rows() * m];
    fill_blocks(&mut outputs, m, interrupt, |range, outputs| {
        let (mut block, mut values) = (Block::new(rows), Values::default());
        for (range, outputs) in blocks(range).zip(outputs.chunks_mut(BLOCK * m)) {
            block.load(rows, range);
            layers.forward(&block, &mut values, outputs);
        }
    })?;
    Ok(outputs)
}

/// ∂F/∂O, n × m.
pub fn residuals<R: Rows + Copy>(
    problem: &Problem<'_, R>,
    model: &Model,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    let mut outputs = outputs::<f64>(model, &problem.rows, interrupt)?;
    let m = problem.n_outputs;
    fill_blocks(&mut outputs, m, interrupt, |range, outputs| {
        let mut residual = vec![0.0; m];
        for (row, outputs) in range.zip(outputs.chunks_exact_mut(m)) {
            problem.row_loss(row, outputs, &mut residual);
            outputs.copy_from_slice(&residual);
        }
    })?;
    Ok(outputs)
}

/// The objective of a model, and its gradient.
#[derive(Debug)]
pub struct Evaluation {
    /// Σ_i s_i ℓ(y_i, o_i) + α/2 ‖W‖².
    pub objective: f64,
    /// ∂F/∂H by features, as the basis is stored; empty unless asked for.
    pub basis: Vec<f64>,
    /// ∂F/∂U = Zᵀ R, k × m.
    pub output: Vec<f64>,
    /// ∂F/∂W = [X, 1]ᵀ R + α W; empty without linear terms.
    pub linear: Vec<f64>,
}

/// Evaluates `model`, with ∂F/∂H if `basis`: Σ_i x_ij t_ir 2 p_ir for the square kernel and
/// Σ_i x_ij t_ir (p_ir − x_ij h_jr) for ANOVA, with p = X H and t = R Uᵀ (SPEC 6).
pub fn evaluate<R: Rows + Copy>(
    problem: &Problem<'_, R>,
    model: &Model,
    basis: bool,
    interrupt: &Interrupt,
) -> Result<Evaluation> {
    let rows = &problem.rows;
    let layers = Layers::<f64>::new(model);
    let Layers { n_inputs, k, m, width, .. } = layers;
    let transposed = transposed(&model.output, k, m);
    // [∂H, ∂W], Σ_i x_ij² t_ir for ANOVA, ∂U, and the sum of the losses.
    let skipped = if basis { 0 } else { k };
    let anova = if basis && model.kernel == Kernel::Anova { k } else { 0 };
    let sizes = [n_inputs * (width - skipped), n_inputs * anova, k * m];
    let sums =
        sum_rows(rows.n_rows(), sizes.iter().sum::<usize>() + 1, interrupt, |range, sums| {
            let (first, sums) = sums.split_at_mut(sizes[0]);
            let (squares, sums) = sums.split_at_mut(sizes[1]);
            let (output, loss) = sums.split_at_mut(sizes[2]);
            let mut first = OuterSum::new(first, width - skipped);
            let mut squares = OuterSum::new(squares, k);
            let mut output = OuterSum::new(output, m);
            let (mut block, mut values) = (Block::new(rows), Values::default());
            let (mut outputs, mut residuals) = (vec![0.0; BLOCK * m], vec![0.0; BLOCK * m]);
            let mut back = vec![0.0; BLOCK * k];
            for range in blocks(range) {
                let n = range.len();
                block.load(rows, range.clone());
                layers.forward(&block, &mut values, &mut outputs[..n * m]);
                let each = outputs.chunks_exact(m).zip(residuals.chunks_exact_mut(m));
                for (row, (outputs, residual)) in range.zip(each) {
                    loss[0] += problem.row_loss(row, outputs, residual);
                }
                let residual = |row: usize| &residuals[row * m..(row + 1) * m];
                output.add_dense(&values.activations, k, |row, out| {
                    out.copy_from_slice(residual(row))
                });
                if basis {
                    back.fill(0.0);
                    transposed.add_scores(&residuals[..n * m], &mut back[..n * k]);
                }
                first.add(&block, |row, out| {
                    let (to_basis, to_linear) = out.split_at_mut(k - skipped);
                    let terms = back[row * k..].iter().zip(&values.products[row * width..]);
                    for (out, (t, p)) in to_basis.iter_mut().zip(terms) {
                        *out = if anova == 0 { 2.0 * t * p } else { t * p };
                    }
                    to_linear.copy_from_slice(&residual(row)[..to_linear.len()]);
                });
                if anova > 0 {
                    squares.add(&block.squared(), |row, out| {
                        out.copy_from_slice(&back[row * k..][..k])
                    });
                }
            }
        })?;
    let (first, sums) = sums.split_at(sizes[0]);
    let (squares, sums) = sums.split_at(sizes[1]);
    let (output, loss) = sums.split_at(sizes[2]);
    let mut gradient = Evaluation {
        objective: loss[0] + problem.ridge_value(model.linear.as_deref()),
        basis: Vec::new(),
        output: output.to_vec(),
        linear: Vec::new(),
    };
    for sums in first.chunks_exact((width - skipped).max(1)) {
        gradient.basis.extend_from_slice(&sums[..k - skipped]);
        gradient.linear.extend_from_slice(&sums[k - skipped..]);
    }
    // The constant is part of the rows only where the basis sees it.
    gradient.basis.truncate(if basis { model.basis.len() } else { 0 });
    for ((g, q), h) in gradient.basis.iter_mut().zip(squares).zip(&model.basis) {
        *g -= q * h;
    }
    if let (Some(ridge), Some(linear)) = (problem.ridge, &model.linear) {
        for (g, w) in gradient.linear.iter_mut().zip(linear) {
            *g += ridge * w;
        }
    }
    Ok(gradient)
}

/// What a block leaves on its way.
#[derive(Debug)]
struct Values<T> {
    /// [H, W]ᵀ [x, 1].
    products: Vec<f64>,
    /// K(h_r, x).
    activations: Vec<T>,
    /// Σ_j h_j² x_j² for ANOVA.
    squares: Vec<f64>,
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self { products: Vec::new(), activations: Vec::new(), squares: Vec::new() }
    }
}

/// A model packed for products.
struct Layers<T> {
    n_inputs: usize,
    k: usize,
    m: usize,
    /// Columns of [H, W].
    width: usize,
    first: Panels<T>,
    /// H², for ANOVA.
    squares: Option<Panels<T>>,
    output: Panels<T>,
}

impl<T: Element> Layers<T> {
    fn new(model: &Model) -> Self {
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
        let squares = (model.kernel == Kernel::Anova).then(|| {
            let mut squares = vec![0.0; n_inputs * k];
            for (to, h) in squares.iter_mut().zip(&model.basis) {
                *to = h * h;
            }
            packed(&squares, n_inputs, k)
        });
        let first = packed(&both, n_inputs, width);
        Self { n_inputs, k, m, width, first, squares, output: packed(&model.output, k, m) }
    }

    /// Writes the outputs of a block's rows.
    fn forward(&self, block: &Block<T>, values: &mut Values<T>, outputs: &mut [f64]) {
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

/// Uᵀ.
fn transposed(output: &[f64], k: usize, m: usize) -> Panels<f64> {
    let mut panels = Panels::new(m, k);
    panels.pack(output, |c| c, m);
    panels
}
