//! The dual of a structured model written in Python.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::arrays::slice;
use crate::dual::{BlockDual, DualOracle, Points, Survey, Vertex};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;

/// Most examples per call into Python, and how long such a call may take before it gets fewer: signals are
/// looked for in between.
const BATCH: usize = 64;
const PATIENCE: Duration = Duration::from_millis(50);
/// A margin may be this much below one known before, relative to the size of its terms.
const ROUNDING: f64 = 1e-9;

/// The dual of a structured problem whose oracle is a Python object with one method,
/// `vertices(indices, weights)`: for each example (−ψ, L) at its loss-augmented decoding, ψ dense.
///
/// Parts are the weights, with −ψ as a vertex's entries, and one more part for its loss: the gradient
/// is then the weights and a 1.
pub(super) struct OracleDual<'e> {
    oracle: Py<PyAny>,
    n_weights: usize,
    lambda: f64,
    shares: Vec<f64>,
    failure: &'e Mutex<Option<PyErr>>,
}

impl<'e> OracleDual<'e> {
    /// `shares` sum to 1. What the oracle raises goes to `failure`.
    pub fn new(
        oracle: Py<PyAny>,
        n_weights: usize,
        lambda: f64,
        shares: Vec<f64>,
        failure: &'e Mutex<Option<PyErr>>,
    ) -> Self {
        Self { oracle, n_weights, lambda, shares, failure }
    }

    fn ask(&self, blocks: &[u32], weights: &[f64], found: &mut Vec<Sparse>) -> Result<()> {
        let answer = Python::attach(|py| -> PyResult<()> {
            let weights = PyArray1::from_slice(py, weights);
            let vertices = self.oracle.call_method1(py, "vertices", (blocks.to_vec(), weights))?;
            let vertices: Vec<(PyReadonlyArray1<'_, f64>, f64)> = vertices.extract(py)?;
            for (features, loss) in &vertices {
                let features = slice(features)?.iter().chain([loss]).enumerate();
                let entries = features.filter(|(_, value)| **value != 0.0);
                found.push(entries.map(|(index, value)| (index as u32, *value)).collect());
            }
            Ok(())
        });
        answer.map_err(|error| self.fail(error))
    }

    /// Keeps what is to be raised, and ends the run.
    fn fail(&self, error: PyErr) -> Error {
        let mut failure = self.failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *failure = Some(error);
        Error::Interrupted
    }

    /// The sum of the sizes of a margin's terms.
    fn scale(&self, weights: &[f64], point: &[(u32, f64)]) -> f64 {
        let features = self.features(point).iter();
        let sizes = features.map(|(index, value)| (value * weights[*index as usize]).abs());
        sizes.sum::<f64>() + self.loss(point).abs()
    }

    /// The vertices of some blocks, a batch at a time.
    fn ask_all(
        &self,
        blocks: &[u32],
        weights: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Vec<Sparse>> {
        let mut found = Vec::with_capacity(blocks.len());
        let (mut rest, mut size) = (blocks, 1);
        while !rest.is_empty() {
            interrupt.check()?;
            let (batch, others) = rest.split_at(size.min(rest.len()));
            let start = Instant::now();
            self.ask(batch, weights, &mut found)?;
            size =
                if start.elapsed() < PATIENCE { (2 * size).min(BATCH) } else { size.div_ceil(2) };
            rest = others;
        }
        Ok(found)
    }

    fn all(&self) -> Vec<u32> {
        (0..self.shares.len() as u32).collect()
    }

    /// The entry of the loss.
    fn loss(&self, vertex: &[(u32, f64)]) -> f64 {
        vertex.last().filter(|last| last.0 as usize == self.n_weights).map_or(0.0, |last| last.1)
    }

    /// The entries of −ψ.
    fn features<'v>(&self, vertex: &'v [(u32, f64)]) -> &'v [(u32, f64)] {
        match vertex.last() {
            Some((index, _)) if *index as usize == self.n_weights => &vertex[..vertex.len() - 1],
            _ => vertex,
        }
    }
}

impl BlockDual for OracleDual<'_> {
    fn n_blocks(&self) -> usize {
        self.shares.len()
    }

    fn n_weights(&self) -> usize {
        self.n_weights
    }

    fn lambda(&self) -> f64 {
        self.lambda
    }

    fn set_lambda(&mut self, lambda: f64) {
        self.lambda = lambda;
    }

    fn share(&self, block: usize) -> f64 {
        self.shares[block]
    }

    fn start(&self, _: usize) -> Sparse {
        Sparse::new()
    }

    /// Entries are of the size of the features, whatever that is.
    fn dust(&self) -> f64 {
        0.0
    }

    fn load(&mut self, _: usize, _: &[f64], _: &[(u32, f64)]) {}

    fn load_at(&mut self, _: usize, _: &[u32], _: &[f64], _: &[(u32, f64)]) {}

    fn along(&self, weights: &[f64], direction: &[(u32, f64)]) -> f64 {
        let features = self.features(direction).iter();
        let scores = features.map(|(index, value)| value * weights[*index as usize]);
        scores.sum::<f64>() + self.loss(direction)
    }

    fn vertex(&mut self, block: usize, weights: &[f64], vertex: &mut Sparse) -> Result<()> {
        let mut found = Vec::with_capacity(1);
        self.ask(&[block as u32], weights, &mut found)?;
        *vertex = found.pop().unwrap_or_default();
        Ok(())
    }

    fn curvature(&mut self, block: usize, direction: &[(u32, f64)]) -> f64 {
        let norm: f64 = self.features(direction).iter().map(|(_, value)| value * value).sum();
        self.shares[block] / self.lambda * norm
    }

    fn advance(&mut self, block: usize, direction: &[(u32, f64)], step: f64, weights: &mut [f64]) {
        let scale = step * self.shares[block] / self.lambda;
        for (index, value) in self.features(direction) {
            weights[*index as usize] -= scale * value;
        }
    }

    fn linear(&mut self, _: usize, direction: &[(u32, f64)]) -> f64 {
        self.loss(direction)
    }

    fn vertices(
        &mut self,
        blocks: &[u32],
        weights: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Vec<(Sparse, f64)>> {
        let found = self.ask_all(blocks, weights, interrupt)?;
        let with_loss = |(block, vertex): (&u32, Sparse)| {
            let loss = self.shares[*block as usize] * self.along(weights, &vertex);
            (vertex, loss)
        };
        Ok(blocks.iter().zip(found).map(with_loss).collect())
    }

    fn survey(
        &mut self,
        weights: &[f64],
        points: &Points<'_>,
        interrupt: &Interrupt,
    ) -> Result<Survey> {
        let found = self.ask_all(&self.all(), weights, interrupt)?;
        let terms = found.iter().enumerate().map(|(block, vertex)| {
            let (share, point) = (self.shares[block], points(block));
            let loss = self.along(weights, vertex);
            let gap = loss - self.along(weights, point);
            let scale = self.scale(weights, vertex) + self.scale(weights, point);
            if gap < -ROUNDING * (1.0 + scale) {
                // The point combines labels that the oracle has returned before.
                return Err(self.fail(PyValueError::new_err(format!(
                    "model: loss_augmented_decode returned a label for example {block} that scores \
                     {:.3e} less than labels it returned before; it must return a maximiser",
                    -gap
                ))));
            }
            Ok((share * loss, share * self.loss(point), share * gap))
        });
        Ok(Survey::of(terms.collect::<Result<_>>()?))
    }
}

impl DualOracle for OracleDual<'_> {
    fn n_weights(&self) -> usize {
        self.n_weights
    }

    fn regularization(&self) -> (f64, f64) {
        (self.lambda, 0.0)
    }

    fn vertex(
        &mut self,
        weights: &[f64],
        image: &mut [f64],
        _: bool,
        interrupt: &Interrupt,
    ) -> Result<Vertex> {
        let blocks = self.all();
        let found = BlockDual::vertices(self, &blocks, weights, interrupt)?;
        image.fill(0.0);
        let mut sums = Vertex { loss: Some(0.0), ..Vertex::default() };
        for (block, (vertex, loss)) in found.iter().enumerate() {
            self.advance(block, vertex, 1.0, image);
            let linear = self.shares[block] * self.loss(vertex);
            sums.add(&Vertex { loss: Some(*loss), linear, ..Vertex::default() });
        }
        Ok(sums)
    }

    fn follow(&mut self, _: f64) {}
}
