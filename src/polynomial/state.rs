//! What a fit keeps between steps: the model, its activations and outputs, and passes over the rows.

use super::kernel::{add_product, multiply_transposed};
use super::model::{Model, add_layer};
use super::problem::Problem;
use crate::data::Rows;
use crate::error::Result;
use crate::parallel::{fill_rows_summing, sum_rows};
use crate::run::Interrupt;

/// A model with what its training rows make of it.
#[derive(Debug)]
pub struct State {
    /// The model; its layers are those of `layers`.
    pub model: Model,
    /// Z = K(X, H), n × k.
    pub activations: Vec<f64>,
    /// U, W and what follows from them.
    pub layers: Layers,
}

/// Output layer and linear terms, evaluated.
#[derive(Debug, Clone)]
pub struct Layers {
    /// U, k × m.
    pub output: Vec<f64>,
    /// W with the intercepts, (d + 1) × m.
    pub linear: Option<Vec<f64>>,
    /// O = Z U + [X, 1] W, n × m.
    pub outputs: Vec<f64>,
    /// Σ_i s_i ℓ(y_i, o_i) + α/2 ‖W‖².
    pub objective: f64,
}

/// Gradients of the objective with respect to both layers.
#[derive(Debug)]
pub struct LayerGradient {
    /// ∂F/∂U = Zᵀ R.
    pub output: Vec<f64>,
    /// ∂F/∂W = [X, 1]ᵀ R + α W; empty without linear terms.
    pub linear: Vec<f64>,
}

impl State {
    /// Evaluates `model` on the problem's rows.
    pub fn new<R: Rows + Copy>(
        problem: &Problem<'_, R>,
        model: Model,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let activations = problem.kernel.all_activations(
            &problem.basis_rows(),
            &model.basis,
            model.n_bases,
            interrupt,
        )?;
        let layers = Layers::evaluate(
            problem,
            &activations,
            model.output.clone(),
            model.linear.clone(),
            interrupt,
        )?;
        Ok(Self { model, activations, layers })
    }

    /// Takes over new layers for the same basis.
    pub fn set_layers(&mut self, layers: Layers) {
        self.model.output.clone_from(&layers.output);
        self.model.linear.clone_from(&layers.linear);
        self.layers = layers;
    }
}

impl Layers {
    /// Outputs and objective of the layers `output` and `linear` on top of `activations`.
    pub fn evaluate<R: Rows + Copy>(
        problem: &Problem<'_, R>,
        activations: &[f64],
        output: Vec<f64>,
        linear: Option<Vec<f64>>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let m = problem.n_outputs;
        let k = output.len() / m;
        let linear_rows = problem.linear_rows();
        // The row's loss is taken while its outputs are at hand.
        let mut outputs = vec![0.0; problem.rows.n_rows() * m];
        let loss = fill_rows_summing(&mut outputs, m, interrupt, |row, out| {
            add_layer(&activations[row * k..(row + 1) * k], &output, out);
            if let Some(linear) = &linear {
                add_product(&linear_rows, row, linear, out);
            }
            problem.row_value(row, out)
        })?;
        let objective = loss + problem.ridge_value(linear.as_deref());
        Ok(Self { output, linear, outputs, objective })
    }
}

/// R = ∂F/∂O (n × m) and the sum of the losses.
pub fn residuals<R: Rows + Copy>(
    problem: &Problem<'_, R>,
    outputs: &[f64],
    interrupt: &Interrupt,
) -> Result<(Vec<f64>, f64)> {
    let m = problem.n_outputs;
    let mut residuals = vec![0.0; outputs.len()];
    let loss = fill_rows_summing(&mut residuals, m, interrupt, |row, residual| {
        problem.row_loss(row, &outputs[row * m..(row + 1) * m], residual)
    })?;
    Ok((residuals, loss))
}

/// The gradients with respect to both layers, from the residuals at the model's outputs.
pub fn layer_gradient<R: Rows + Copy>(
    problem: &Problem<'_, R>,
    activations: &[f64],
    linear: Option<&[f64]>,
    residuals: &[f64],
    interrupt: &Interrupt,
) -> Result<LayerGradient> {
    let m = problem.n_outputs;
    let k = activations.len() / problem.rows.n_rows();
    let output = sum_rows(problem.rows.n_rows(), k * m, interrupt, |rows, gradient| {
        for row in rows {
            let residual = &residuals[row * m..(row + 1) * m];
            for (z, gradient) in
                activations[row * k..(row + 1) * k].iter().zip(gradient.chunks_exact_mut(m))
            {
                for (g, r) in gradient.iter_mut().zip(residual) {
                    *g += z * r;
                }
            }
        }
    })?;
    let linear = match (problem.ridge, linear) {
        (Some(ridge), Some(linear)) => {
            let mut gradient =
                multiply_transposed(&problem.linear_rows(), residuals, m, false, interrupt)?;
            for (g, w) in gradient.iter_mut().zip(linear) {
                *g += ridge * w;
            }
            gradient
        }
        _ => Vec::new(),
    };
    Ok(LayerGradient { output, linear })
}
