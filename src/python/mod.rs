//! The PyO3 module `dualgap._core`. It borrows arrays, releases the GIL, polls for signals, and
//! converts errors.

use pyo3::prelude::*;

use crate::memory::reserve::Allocator;
use crate::names::names;

mod arrays;
mod class_features;
mod clicks;
mod consensus;
mod cross_validation;
mod frank_wolfe;
mod libsvm;
mod logistic;
mod losses;
mod mapped;
mod multiclass;
mod oracle;
mod own_loss;
mod polynomial;
mod pools;
mod ranking;
mod recommend;
mod records;
mod sentences;
mod sequence;
mod session;
mod structured;
mod structured_models;
mod tagger;
mod trace;

/// The allocator of the module. If memory runs out, the call raises MemoryError instead of ending
/// the Python process.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("SIMD", crate::linalg::instruction_set()?)?;
    module.add("OUTPUT_LOSSES", losses::output_losses(module.py())?)?;
    module.add("PENALTIES", names(crate::penalty::REGISTRY))?;
    module.add("LOSSES", losses::margin_losses(module.py())?)?;
    module.add("LOGISTIC_SOLVERS", crate::logistic::LogisticMethod::NAMES)?;
    module.add("SOLVERS", crate::multiclass::MulticlassMethod::names())?;
    module.add("FRANK_WOLFE_CHOICES", frank_wolfe::choices(module.py())?)?;
    module.add("STEPS", crate::solver::STEPS)?;
    module.add("SAMPLINGS", names(crate::solver::Sampling::NAMES))?;
    module.add("STRUCTURED_SOLVERS", crate::structured::StructuredMethod::names())?;
    module.add("MAX_FACTORISED", crate::polynomial::spectral_bounds::MAX_FACTORISED)?;
    module.add("THREADS_PER_CORE", session::THREADS_PER_CORE)?;
    module.add_class::<structured_models::StructuredModel>()?;
    module.add_function(wrap_pyfunction!(structured::fit_structured, module)?)?;
    module.add_function(wrap_pyfunction!(structured::structured_path, module)?)?;
    module.add_function(wrap_pyfunction!(losses::check_loss, module)?)?;
    module.add_function(wrap_pyfunction!(libsvm::read_libsvm, module)?)?;
    module.add_function(wrap_pyfunction!(logistic::fit_logistic_regression, module)?)?;
    module.add_function(wrap_pyfunction!(logistic::fit_logistic_regressions, module)?)?;
    module.add_function(wrap_pyfunction!(logistic::logistic_certificate, module)?)?;
    module.add_function(wrap_pyfunction!(logistic::logistic_sums, module)?)?;
    module.add_function(wrap_pyfunction!(multiclass::fit_multiclass, module)?)?;
    module.add_function(wrap_pyfunction!(multiclass::multiclass_path, module)?)?;
    module.add_function(wrap_pyfunction!(multiclass::plan_multiclass, module)?)?;
    module.add_function(wrap_pyfunction!(class_features::fit_class_features, module)?)?;
    module.add_function(wrap_pyfunction!(cross_validation::cross_validate, module)?)?;
    module.add_function(wrap_pyfunction!(consensus::consensus_round, module)?)?;
    module.add_function(wrap_pyfunction!(consensus::newton_direction, module)?)?;
    module.add_function(wrap_pyfunction!(consensus::newton_round, module)?)?;
    module.add_function(wrap_pyfunction!(frank_wolfe::minimize_frank_wolfe, module)?)?;
    module.add_function(wrap_pyfunction!(frank_wolfe::linear_vertex, module)?)?;
    module.add_function(wrap_pyfunction!(frank_wolfe::smooth_value, module)?)?;
    module.add_function(wrap_pyfunction!(polynomial::fit_polynomial, module)?)?;
    module.add_function(wrap_pyfunction!(polynomial::predict_polynomial, module)?)?;
    module.add_function(wrap_pyfunction!(polynomial::select_basis, module)?)?;
    module.add_function(wrap_pyfunction!(recommend::fit_variational, module)?)?;
    module.add_class::<sentences::PyVocabulary>()?;
    module.add_class::<tagger::PyTagger>()?;
    module.add_class::<sequence::SequencePoint>()?;
    module.add_class::<sequence::SequenceProblem>()?;
    module.add_function(wrap_pyfunction!(sentences::read_labels, module)?)?;
    module.add_function(wrap_pyfunction!(sequence::fit_sequences, module)?)?;
    module.add_function(wrap_pyfunction!(sequence::sequence_objective, module)?)?;
    module.add_function(wrap_pyfunction!(sequence::sequence_path, module)?)?;
    module.add_function(wrap_pyfunction!(clicks::fit_interactions, module)?)?;
    module.add_class::<ranking::PackedItems>()?;
    module.add_class::<clicks::DenseItems>()?;
    module.add_function(wrap_pyfunction!(clicks::factor_gram, module)?)?;
    module.add_function(wrap_pyfunction!(clicks::item_graph, module)?)?;
    module.add_function(wrap_pyfunction!(clicks::item_regression, module)?)?;
    module.add_function(wrap_pyfunction!(clicks::best_of_blend, module)?)?;
    module.add_function(wrap_pyfunction!(clicks::scores_of_blend, module)?)?;
    module.add_function(wrap_pyfunction!(clicks::compare_blends, module)?)?;
    module.add_function(wrap_pyfunction!(clicks::new_interactions, module)?)?;
    module.add_function(wrap_pyfunction!(ranking::new_blocks, module)?)?;
    module.add_function(wrap_pyfunction!(ranking::best, module)?)?;
    Ok(())
}
