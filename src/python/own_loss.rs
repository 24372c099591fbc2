//! Losses written in Python.

use std::sync::{Arc, Mutex, OnceLock};

use numpy::PyArray1;
use pyo3::prelude::*;

use super::arrays::{Vector, slice};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;
use crate::polytope::{Polytope, Scratch};

/// Maximum number of calls of `project` in the search for one multiplier.
const MAX_PROJECTIONS: usize = 100;

/// A Python object with `vertex(margins, label)` and, if `projects` is true, `project(point,
/// label)`. Both methods return a point of the loss's set, which `_own_loss.py` checks.
#[derive(Debug)]
pub(super) struct OwnLoss {
    object: Py<PyAny>,
    projects: bool,
    radius: f64,
    /// The object's exception, kept until the computation ends.
    failure: Mutex<Option<PyErr>>,
    /// The interrupt by which an exception ends the computation.
    interrupt: OnceLock<Interrupt>,
}

impl<'py> FromPyObject<'_, 'py> for OwnLoss {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (projects, radius) = (object.getattr("projects")?, object.getattr("radius")?);
        Ok(Self {
            object: object.to_owned().unbind(),
            projects: projects.extract()?,
            radius: radius.extract()?,
            failure: Mutex::new(None),
            interrupt: OnceLock::new(),
        })
    }
}

impl OwnLoss {
    /// Stores the interrupt that ends the session as soon as a method of the object raises an exception. Raises the
    /// interrupt now if a method has already raised an exception.
    pub fn stops(&self, interrupt: &Interrupt) {
        let watched = self.interrupt.get_or_init(|| interrupt.clone());
        if self.failure.lock().is_ok_and(|failure| failure.is_some()) {
            watched.raise();
        }
    }

    /// Raises the object's exception unchanged if there is one. Otherwise returns the result of the
    /// computation.
    pub fn raise<T>(&self, result: PyResult<T>) -> PyResult<T> {
        match self.failure.lock().map(|mut failure| failure.take()) {
            Ok(Some(error)) => Err(error),
            _ => result,
        }
    }

    /// Calls a method and returns its point; None if the method raises an exception.
    fn point(&self, method: &str, at: &[f64], label: usize) -> Option<Vec<f64>> {
        let answer = Python::attach(|py| -> PyResult<Vec<f64>> {
            let at = PyArray1::from_slice(py, at);
            let point: Vector<'_, f64> =
                self.object.call_method1(py, method, (at, label))?.extract(py)?;
            Ok(slice(&point)?.to_vec())
        });
        match answer {
            Ok(point) => Some(point),
            Err(error) => {
                // Only the first failure is reported.
                if let Ok(mut failure) = self.failure.lock() {
                    failure.get_or_insert(error);
                }
                self.interrupt.get().inspect(|interrupt| interrupt.raise());
                None
            }
        }
    }

    /// Returns the projection of v − θ, and the sum of the projection's coordinates.
    fn shifted(&self, v: &[f64], theta: f64, label: usize) -> Option<(Vec<f64>, f64)> {
        let mut at: Vec<f64> = v.iter().map(|v| v - theta).collect();
        at[label] = 0.0;
        let point = self.point("project", &at, label)?;
        let sum = point.iter().sum();
        Some((point, sum))
    }

    /// Returns the projection with a rank-one term, b = P(v − θ), where θ solves θ = bias · 1ᵀP(v − θ). The right-hand
    /// side decreases in θ, so the secant method inside a bracket finds θ. Even if θ is inexact, b is in the set.
    fn biased(&self, v: &[f64], label: usize, bias: f64, guess: f64) -> Option<(Vec<f64>, f64)> {
        let (mut low, mut high) = (0.0, bias * self.radius);
        let mut theta = guess.clamp(low, high);
        let mut last: Option<(f64, f64)> = None;
        for step in 1..MAX_PROJECTIONS {
            let (point, sum) = self.shifted(v, theta, label)?;
            let excess = bias * sum - theta;
            if excess.abs() <= 1e-14 * (1.0 + theta) {
                return Some((point, theta));
            }
            if excess > 0.0 {
                low = theta
            } else {
                high = theta
            }
            let secant =
                last.map(|(before, other)| theta - excess * (theta - before) / (excess - other));
            last = Some((theta, excess));
            // The first step has no second point for a secant, so it moves θ by half the excess. The excess decreases
            // at least as fast as θ increases, so the root is no further away than the whole excess.
            let next = secant.unwrap_or(theta + 0.5 * excess);
            let bisect = step % 4 == 0;
            theta = if low < next && next < high && !bisect { next } else { 0.5 * (low + high) };
            if !(low < theta && theta < high) {
                break;
            }
        }
        Some((self.shifted(v, theta, label)?.0, theta))
    }
}

/// Raises the exception of a loss written in Python if there is one. Otherwise returns the result.
pub(super) fn raised<T>(own: Option<&OwnLoss>, result: PyResult<T>) -> PyResult<T> {
    match own {
        Some(own) => own.raise(result),
        None => result,
    }
}

/// A shared reference to a loss, which problems can own.
#[derive(Debug, Clone)]
pub(super) struct OwnPolytope(pub Arc<OwnLoss>);

impl Polytope for OwnPolytope {
    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn support(&self, v: &[f64], label: usize, scratch: &mut Scratch) -> f64 {
        self.vertex(v, label, scratch, &mut Sparse::new())
    }

    fn vertex(&self, v: &[f64], label: usize, _: &mut Scratch, vertex: &mut Sparse) -> f64 {
        vertex.clear();
        let point = self.0.point("vertex", v, label).unwrap_or_default();
        let value: f64 = point.iter().zip(v).map(|(beta, v)| beta * v).sum();
        // The set of every loss contains 0, so the value is never negative, whatever the object returns.
        if value > 0.0 {
            let entries = (0..).zip(point).filter(|(_, beta)| *beta != 0.0);
            vertex.extend(entries);
        }
        value.max(0.0)
    }

    fn project(&self, v: &[f64], label: usize, bias: f64, scratch: &mut Scratch, beta: &mut [f64]) {
        let guess = scratch.guess.take().unwrap_or(0.0);
        match self.0.biased(v, label, bias, guess) {
            Some((point, multiplier)) => {
                beta.copy_from_slice(&point);
                scratch.multiplier = multiplier;
            }
            None => beta.fill(0.0),
        }
        beta[label] = 0.0;
    }

    fn distance(&self, beta: &[(u32, f64)], label: usize, n_classes: usize) -> f64 {
        if !self.0.projects {
            return f64::INFINITY;
        }
        let mut dense = vec![0.0; n_classes];
        beta.iter().for_each(|&(class, value)| dense[class as usize] = value);
        match self.0.point("project", &dense, label) {
            Some(nearest) => {
                let apart = dense.iter().zip(&nearest).map(|(beta, near)| (beta - near).abs());
                apart.sum::<f64>() * (1.0 + 2.0 * n_classes as f64 * f64::EPSILON)
            }
            None => f64::INFINITY,
        }
    }

    fn is_symmetric(&self) -> bool {
        false
    }

    fn radius(&self, _: usize) -> f64 {
        self.0.radius
    }
}
