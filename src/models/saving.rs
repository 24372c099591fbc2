//! Model files in the format of the Python package (`python/dualgap/_estimator/saving.py`).

use std::fmt::Write;
use std::path::Path;

use super::labels::Label;
use super::npz::{NpyArray, archive};
use super::options::{FitOptions, ModelFile};
use super::{LinearClassifier, Loss};
use crate::error::{Error, Result};
use crate::run::Epoch;

/// The parameters of `MulticlassSVC`.
pub(super) fn svc_parameters(
    loss: &Loss,
    [smoothing, intercept_scaling]: [f64; 2],
    options: &FitOptions,
) -> ModelFile {
    let loss = loss.name().map(|(name, parameters)| {
        let name = quoted(name);
        if parameters.k.is_none() && parameters.weights.is_none() {
            return name;
        }
        let k = parameters.k.map_or("null".into(), |k| k.to_string());
        let weights = parameters.weights.as_ref();
        let weights = weights.map_or("null".into(), |weights| format!(r#"{{"$tuple": {weights:?}}}"#));
        format!(
            r#"{{"$object": ["Loss", [["name", {name}], ["k", {k}], ["weights", {weights}], ["costs", null], ["per_row", false]]]}}"#
        )
    });
    let Some(loss) = loss else { return ModelFile::CustomLoss };
    let common = common_parameters(options);
    let parameters = format!(
        r#"{common}, "loss": {loss}, "smoothing": {smoothing:?}, "intercept_scaling": {intercept_scaling:?}, "sampling": "permutation", "step": null"#
    );
    ModelFile::Described { class: "MulticlassSVC", parameters }
}

/// The parameters of `LogisticRegression`.
pub(super) fn logistic_parameters(options: &FitOptions) -> ModelFile {
    ModelFile::Described { class: "LogisticRegression", parameters: common_parameters(options) }
}

fn common_parameters(options: &FitOptions) -> String {
    let FitOptions { c, tol, max_iter, solver, seed, fit_intercept, .. } = options;
    format!(
        r#""C": {c:?}, "tol": {tol:?}, "max_iter": {max_iter}, "solver": {}, "random_state": {seed}, "fit_intercept": {fit_intercept}, "callback": null, "class_weight": null, "n_jobs": null, "verbose": null, "warm_start": false"#,
        quoted(solver)
    )
}

/// A string, quoted and escaped as JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            ' '..='~' => quoted.push(character),
            _ => {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    write!(quoted, "\\u{unit:04x}").expect("a string grows");
                }
            }
        }
    }
    quoted + "\""
}

impl<L: Label> LinearClassifier<L> {
    /// The content of a model file that [`from_bytes`](LinearClassifier::from_bytes) and, in Python,
    /// `MulticlassSVC.load` or `LogisticRegression.load` can read.
    ///
    /// # Errors
    /// [`Error::File`] for a loss defined by the caller, which Python does not know, and for weights of 4 GB or more.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let (record, trace) = (&self.record, &self.record.trace);
        let (class, parameters) = match &record.file {
            ModelFile::Described { class, parameters } => (class, parameters),
            ModelFile::Loaded(bytes) => return Ok(bytes.clone()),
            ModelFile::CustomLoss => {
                return Err(Error::File("a model file cannot store a custom loss".into()));
            }
        };
        let (n_outputs, epochs) = (self.intercept().len(), &trace.epochs);
        let dual = trace.certificate.map_or(f64::NEG_INFINITY, |found| found.dual);
        let meta = format!(
            r#"{{"format": "dualgap model 1", "kind": "{class}", "parameters": {{{parameters}}}, "fitted": {{"n_features_in_": {}, "classes_": {{"$array": "classes_"}}, "coef_": {{"$array": "coef_"}}, "intercept_": {{"$array": "intercept_"}}, "history_": {{"$dict": [["epoch", {{"$array": "epoch"}}], ["seconds", {{"$array": "seconds"}}], ["objective", {{"$array": "objective"}}], ["dual_objective", {{"$array": "dual_objective"}}], ["gap", {{"$array": "gap"}}], ["solver", {{"$array": "solver"}}]]}}, "n_iter_": {}, "objective_": {:?}, "dual_objective_": {dual:?}, "duality_gap_": {:?}, "relative_gap_": {:?}, "certificate_": "convex optimum", "null_objective_": {:?}, "converged_": {}, "_lambda": {:?}}}}}"#,
            self.n_features(),
            epochs.len(),
            self.objective(),
            self.gap(),
            self.relative_gap(),
            record.null_objective,
            self.converged(),
            record.lambda,
        );
        let column = |value: &dyn Fn(&Epoch) -> Option<f64>| {
            NpyArray::numbers(&[epochs.len()], epochs.iter().map(|e| value(e).unwrap_or(f64::NAN)))
        };
        let solvers: Vec<&str> = (1..=epochs.len()).map(|epoch| record.solver(epoch)).collect();
        archive(&[
            ("meta", NpyArray::bytes(meta.as_bytes())),
            ("classes_", L::stored(self.classes())),
            (
                "coef_",
                NpyArray::numbers(&[n_outputs, self.n_features()], self.coef().iter().copied()),
            ),
            ("intercept_", NpyArray::numbers(&[n_outputs], self.intercept().iter().copied())),
            ("epoch", NpyArray::integers(epochs.iter().map(|epoch| epoch.epoch as i64))),
            ("seconds", column(&|epoch| Some(epoch.seconds))),
            ("objective", column(&|epoch| epoch.objective)),
            ("dual_objective", column(&|epoch| epoch.certificate.map(|found| found.dual))),
            ("gap", column(&|epoch| epoch.certificate.map(|found| found.gap()))),
            ("solver", NpyArray::strings(&solvers)),
        ])
    }

    /// Writes the [model file](LinearClassifier::to_bytes). If the file exists, it is replaced as a whole.
    ///
    /// ```
    /// # use dualgap::prelude::*;
    /// # let rows = Dense::from_slice(&[0.0, 1.0, 2.0, 3.0], 1)?;
    /// let model = MulticlassSvc::new().fit(rows, &["low", "low", "high", "high"])?;
    /// let path = std::env::temp_dir().join("levels.npz");
    /// model.save(&path)?; // in Python: dualgap.MulticlassSVC.load("levels.npz")
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), dualgap::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`to_bytes`](LinearClassifier::to_bytes); also [`Error::File`] if the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (path, bytes) = (path.as_ref(), self.to_bytes()?);
        let draft = path.with_extension(format!("draft-{}", std::process::id()));
        let written = std::fs::write(&draft, bytes).and_then(|()| std::fs::rename(&draft, path));
        written.map_err(|error| {
            // If creating the draft failed, there is nothing to remove.
            let _ = std::fs::remove_file(&draft);
            Error::File(format!("{}: {error}", path.display()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;
    use crate::models::{LogisticClassifier, LogisticRegression, MulticlassSvc};
    use crate::polytope::Cube;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/rust-models");

    /// Replaces the numbers of a model by the numbers in the fixture, because the last digits of a fit depend on the
    /// machine.
    fn fixed<L>(mut model: LinearClassifier<L>) -> LinearClassifier<L> {
        model.record.trace.epochs.truncate(1);
        let epoch = &mut model.record.trace.epochs[0];
        epoch.seconds = 0.25;
        epoch.objective = Some(1.0);
        epoch.certificate = None;
        model.record.trace.objective = 0.75;
        model.record.null_objective = 1.0;
        let certificate = model.record.trace.certificate.as_mut().unwrap();
        (certificate.primal, certificate.dual) = (0.75, 0.5);
        model.coef.iter_mut().for_each(|weight| *weight = (4.0 * *weight).round() + 0.0);
        model.intercept.iter_mut().for_each(|weight| *weight = (4.0 * *weight).round() + 0.0);
        model
    }

    /// The bytes of a fixture file. With `DUALGAP_FIXTURES=write`, writes the file first.
    fn expected(name: &str, bytes: &[u8]) -> Vec<u8> {
        let path = Path::new(FOLDER).join(name);
        if std::env::var("DUALGAP_FIXTURES").is_ok_and(|mode| mode == "write") {
            std::fs::write(&path, bytes).unwrap();
        }
        std::fs::read(path).unwrap()
    }

    #[test]
    fn files_match_the_fixtures_of_the_python_tests() {
        let values = [0.0, 1.0, 0.2, 0.9, 3.0, 1.0, 3.1, 0.8, 0.1, 4.0, 0.0, 4.2];
        let rows = Dense::from_slice(&values, 2).unwrap();
        let labels = ["left", "left", "right", "right", "t\u{f6}p", "t\u{f6}p"];
        let svc = MulticlassSvc::new().loss(Loss::top_k(2)).c(2.0).seed(3);
        let bytes = fixed(svc.fit(rows, &labels).unwrap()).to_bytes().unwrap();
        assert!(bytes == expected("top-k.npz", &bytes));
        let LogisticClassifier(model) =
            LogisticRegression::new().fit(rows, &[false, false, true, true, true, true]).unwrap();
        let bytes = fixed(model).to_bytes().unwrap();
        assert!(bytes == expected("logistic.npz", &bytes));
    }

    #[test]
    fn custom_losses_and_missing_folders_are_errors() {
        let rows = Dense::from_slice(&[0.0, 1.0], 1).unwrap();
        let model = MulticlassSvc::new().loss(Loss::own(Cube)).fit(rows, &[1, 2]).unwrap();
        assert!(matches!(model.to_bytes(), Err(Error::File(_))));
        let model = MulticlassSvc::new().fit(rows, &[1, 2]).unwrap();
        let message = model.save("no/such/folder.npz").unwrap_err().to_string();
        assert!(message.starts_with("no/such/folder.npz: "), "{message}");
    }

    #[test]
    fn json_strings_are_ascii() {
        assert_eq!(quoted("a\"\\\n\u{e9}\u{1f600}"), r#""a\"\\\u000a\u00e9\ud83d\ude00""#);
    }
}
