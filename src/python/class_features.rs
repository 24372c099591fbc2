//! Fits of linear models on joint features ψ(x, j) of rows and classes.

use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{Matrix, Vector, slice};
use super::own_loss::raised;
use super::records::{MarginRecord, MethodRecord, RunRecord, SharesRecord};
use super::session::{Session, guarded, run_session, unchanged};
use super::trace::trace_dict;
use crate::multiclass::{JointMap, fit_joint, joint_method, require_joint_memory};

/// Fits a model on joint features. `settings` is a dictionary with the fields of several records of the module
/// `records`. `class_features` has one row of features per class. If it is None, the rows are the joint features
/// ψ(x, j) themselves, ordered by example and then by class.
#[pyfunction]
pub(super) fn fit_class_features<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    labels: Vector<'py, u32>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let record: MarginRecord<'py> = settings.extract()?;
        let shares: SharesRecord<'py> = settings.extract()?;
        let method: MethodRecord = settings.extract()?;
        let run: RunRecord = settings.extract()?;
        let classes: Option<Matrix<'py>> = settings
            .get_item("class_features")?
            .filter(|given| !given.is_none())
            .map(|given| given.extract())
            .transpose()?;
        let method = joint_method(&method.choices())?;
        let (parts, labels, data) = (record.parts(), slice(&labels)?, rows.rows()?);
        let class_data = classes.as_ref().map(Matrix::rows).transpose()?;
        let borrowed: Vec<_> = [data].into_iter().chain(class_data).collect();
        let map = match class_data {
            Some(classes) => JointMap::kronecker(data, classes, parts.bias, method.order())?,
            None => JointMap::rows(data, parts.n_classes, method.order())?,
        };
        require_joint_memory(&map, method, parts.smoothing > 0.0)?;
        let layout = map.layout();
        let mut problem = parts.on(map, labels, shares.shares(labels.len())?)?;
        let (target, own) = (run.target(), record.own_loss());
        let kernel = |session: &Session<'_>| {
            own.iter().for_each(|own| own.stops(session.interrupt));
            let observe =
                &mut |epoch: &_| session.observe_in_order(epoch, |array| layout.by_class(&array));
            fit_joint(&mut problem, method, target, session.interrupt, observe)
        };
        let fitted = unchanged(py, &borrowed, || {
            raised(own, run_session(py, run.n_threads, run.callback.as_ref(), kernel))
        })?;
        let result = trace_dict(py, &fitted.trace)?;
        result.set_item("null_objective", fitted.null_objective)?;
        result.set_item("solver", (method.name(), fitted.trace.n_first))?;
        let weights = PyArray1::from_vec(py, layout.by_class(&fitted.weights));
        result.set_item("weights", weights.reshape([layout.n_classes, layout.n_features])?)?;
        Ok(result)
    })
}
