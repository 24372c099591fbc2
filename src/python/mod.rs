//! The PyO3 module `dualgap._core`: arrays in, GIL released, signals polled, errors mapped.

use pyo3::prelude::*;

mod arrays;
mod session;

#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
