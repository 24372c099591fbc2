//! Reads model files, from this crate and from the Python package
//! (`python/dualgap/_estimator/saving.py`).

use std::path::Path;

use super::classifier::Record;
use super::json::Json;
use super::labels::Label;
use super::npz_reader::Arrays;
use super::options::ModelFile;
use super::{LinearClassifier, LogisticClassifier};
use crate::error::{Error, Result};
use crate::run::{Certificate, Epoch, Outcome, Returned, Trace};

/// Python classes whose model files a [`LinearClassifier`] can read.
const MARGIN: &[&str] = &["MulticlassSVC", "MulticlassSVCCV"];
const LOGISTIC: &[&str] = &["LogisticRegression", "LogisticRegressionCV"];

fn wrong(what: impl Into<String>) -> Error {
    Error::File(what.into())
}

/// The content of a model file.
struct Reader {
    arrays: Arrays,
    kind: String,
    fitted: Json,
}

impl Reader {
    fn new(bytes: &[u8]) -> Result<Self> {
        let arrays = Arrays::read(bytes)?;
        let text = arrays.get("meta")?.as_bytes().and_then(|text| std::str::from_utf8(text).ok());
        let meta = text.and_then(Json::parse).ok_or_else(|| wrong("the description is damaged"))?;
        let format = meta.get("format").and_then(Json::text).unwrap_or_default();
        if format != "dualgap model 1" {
            return Err(wrong(format!("the format is {format:?}, expected \"dualgap model 1\"")));
        }
        let kind = meta.get("kind").and_then(Json::text).unwrap_or_default().to_owned();
        let fitted = meta.get("fitted").cloned().ok_or_else(|| wrong("the model is not fitted"))?;
        Ok(Self { arrays, kind, fitted })
    }

    /// An attribute of the model.
    fn attribute(&self, name: &str) -> Result<&Json> {
        self.fitted.get(name).ok_or_else(|| wrong(format!("the attribute {name} is missing")))
    }

    fn number(&self, name: &str) -> Result<f64> {
        let number = self.attribute(name)?.number();
        number.ok_or_else(|| wrong(format!("{name} is not a number")))
    }

    /// The shape and the numbers of an attribute that is an array.
    fn numbers(&self, name: &str, value: &Json) -> Result<(Vec<usize>, Vec<f64>)> {
        let array = value.get("$array").and_then(Json::text).map(|name| self.arrays.get(name));
        let array = array.ok_or_else(|| wrong(format!("{name} is not an array")))??;
        let numbers = array.as_numbers().ok_or_else(|| wrong(format!("{name} is not numeric")))?;
        Ok((array.shape().to_vec(), numbers))
    }

    fn classes<L: Label>(&self) -> Result<Vec<L>> {
        let value = self.attribute("classes_")?;
        let found = if let Some(name) = value.get("$array").and_then(Json::text) {
            L::restored(self.arrays.get(name)?)
        } else {
            let items = value.get("$objects").and_then(Json::list).unwrap_or_default();
            let texts: Option<Vec<&str>> = items.iter().map(Json::text).collect();
            texts.and_then(|texts| L::restored(&super::npz::NpyArray::strings(&texts)))
        };
        let classes = found.ok_or_else(|| {
            wrong("its labels have another type; read text as String and numbers as i64")
        })?;
        if classes.len() < 2 || !classes.is_sorted_by(|a, b| a < b) {
            return Err(wrong(
                "its classes must be at least two different values in increasing order",
            ));
        }
        Ok(classes)
    }

    /// A column of the history; empty if there is none.
    fn column(&self, name: &str) -> Result<Vec<f64>> {
        let columns = self.attribute("history_")?.get("$dict").and_then(Json::list);
        let pairs = columns.unwrap_or_default().iter().filter_map(Json::list);
        let mut values = pairs.filter(|pair| pair.len() == 2 && pair[0].text() == Some(name));
        match values.next() {
            Some(pair) => Ok(self.numbers(name, &pair[1])?.1),
            None => Ok(Vec::new()),
        }
    }

    fn trace(&self) -> Result<Trace> {
        let (seconds, solvers) = (self.column("seconds")?, self.solvers()?);
        let n = seconds.len();
        let [objective, dual] = [self.column("objective")?, self.column("dual_objective")?];
        let at = |column: &[f64], index: usize| column.get(index).copied().filter(|x| !x.is_nan());
        let epoch = |(index, seconds): (usize, &f64)| {
            let (primal, dual) = (at(&objective, index), at(&dual, index));
            let certificate = primal.zip(dual).map(|(primal, dual)| Certificate { primal, dual });
            Epoch { epoch: index + 1, seconds: *seconds, objective: primal, certificate }
        };
        let (primal, dual) = (self.number("objective_")?, self.number("dual_objective_")?);
        let converged = self.attribute("converged_")? == &Json::Bool(true);
        Ok(Trace {
            epochs: seconds.iter().enumerate().map(epoch).collect(),
            n_first: solvers.iter().position(|name| name == "newton").unwrap_or(n).min(n),
            outcome: if converged { Outcome::Converged } else { Outcome::EpochLimit },
            objective: primal,
            certificate: Some(Certificate { primal, dual }),
            returned: Returned::Last,
        })
    }

    /// The solvers of the epochs; empty if the file does not name them.
    fn solvers(&self) -> Result<Vec<String>> {
        let columns = self.attribute("history_")?.get("$dict").and_then(Json::list);
        let pairs = columns.unwrap_or_default().iter().filter_map(Json::list);
        let mut names = pairs.filter(|pair| pair.len() == 2 && pair[0].text() == Some("solver"));
        let name = names.next().and_then(|pair| pair[1].get("$array")).and_then(Json::text);
        let found = name.map(|name| self.arrays.get(name)).transpose()?;
        Ok(found.and_then(|array| array.as_strings()).unwrap_or_default())
    }

    fn first_solver(&self) -> Result<String> {
        Ok(self.solvers()?.first().cloned().unwrap_or_else(|| "auto".into()))
    }
}

/// Reads a model of one of the given classes.
fn read<L: Label>(bytes: &[u8], kinds: &[&[&str]]) -> Result<LinearClassifier<L>> {
    let reader = Reader::new(bytes)?;
    if !kinds.iter().any(|kinds| kinds.contains(&reader.kind.as_str())) {
        let expected = kinds.concat().join(", ");
        return Err(wrong(format!("holds a {:?}, expected one of {expected}", reader.kind)));
    }
    let classes: Vec<L> = reader.classes()?;
    let (shape, coef) = reader.numbers("coef_", reader.attribute("coef_")?)?;
    let (_, intercept) = reader.numbers("intercept_", reader.attribute("intercept_")?)?;
    let n_outputs = intercept.len();
    let shares_output = classes.len() == 2 && n_outputs == 1;
    let [found, n_features] = shape[..] else { return Err(wrong("coef_ is not a matrix")) };
    let is_finite = coef.iter().chain(&intercept).all(|value| value.is_finite());
    if found != n_outputs || !(n_outputs == classes.len() || shares_output) || !is_finite {
        return Err(wrong("its weights do not fit its classes, or are not finite"));
    }
    let record = Record {
        trace: reader.trace()?,
        null_objective: reader.number("null_objective_")?,
        lambda: reader.fitted.get("_lambda").and_then(Json::number).unwrap_or(f64::NAN),
        first_solver: reader.first_solver()?,
        file: ModelFile::Loaded(bytes.to_vec()),
    };
    Ok(LinearClassifier::new(classes, n_features, coef, intercept, record))
}

/// Reads a file, and passes its content to a function. Errors name the file.
fn from_file<T>(path: &Path, parse: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
    let named = |error: &dyn std::fmt::Display| wrong(format!("{}: {error}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| named(&error))?;
    parse(&bytes).map_err(|error| named(&error))
}

impl<L: Label> LinearClassifier<L> {
    /// Reads a model file that this crate or the Python package has written: a `MulticlassSVC`, a
    /// `LogisticRegression`, or a cross-validated variant of either. The loaded model predicts the same as the saved
    /// model. Files do not store why a fit ended, only whether it converged. [`outcome`](Trace::outcome) is therefore
    /// `Converged` or, for any other reason, `EpochLimit`.
    ///
    /// ```
    /// # use dualgap::prelude::*;
    /// # let rows = Dense::from_slice(&[0.0, 1.0, 2.0, 3.0], 1)?;
    /// # let path = std::env::temp_dir().join("dualgap-loaded.npz");
    /// let model = MulticlassSvc::new().fit(rows, &["low", "low", "high", "high"])?;
    /// model.save(&path)?;
    /// let loaded = LinearClassifier::<String>::load(&path)?;
    /// assert_eq!(loaded.predict(rows)?, model.predict(rows)?);
    /// assert_eq!(loaded.gap(), model.gap());
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), dualgap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::File`] for files that cannot be read, are damaged, or contain a different kind of model or labels of a
    /// different type.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        from_file(path.as_ref(), Self::from_bytes)
    }

    /// Reads the content of a model file; see [`load`](LinearClassifier::load).
    ///
    /// # Errors
    /// As for [`load`](LinearClassifier::load).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        read(bytes, &[MARGIN, LOGISTIC])
    }
}

impl<L: Label> LogisticClassifier<L> {
    /// Reads a model file of a `LogisticRegression`; see [`LinearClassifier::load`].
    ///
    /// # Errors
    /// As for [`LinearClassifier::load`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        from_file(path.as_ref(), |bytes| read(bytes, &[LOGISTIC]).map(Self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;
    use crate::models::{LogisticRegression, MulticlassSvc};

    fn rows() -> Dense<'static, f64> {
        const VALUES: [f64; 12] = [0.0, 1.0, 0.2, 0.9, 3.0, 1.0, 3.1, 0.8, 0.1, 4.0, 0.0, 4.2];
        Dense::from_slice(&VALUES, 2).unwrap()
    }

    #[test]
    fn loaded_models_have_the_predictions_certificate_and_bytes_of_saved_models() {
        let labels = [3_i64, 3, -5, -5, 8, 8];
        let model = MulticlassSvc::new().loss("weston-watkins").fit(rows(), &labels).unwrap();
        let bytes = model.to_bytes().unwrap();
        let loaded = LinearClassifier::<i64>::from_bytes(&bytes).unwrap();
        assert_eq!(loaded.scores(rows()).unwrap(), model.scores(rows()).unwrap());
        assert_eq!((loaded.classes(), loaded.solver()), (model.classes(), model.solver()));
        assert_eq!((loaded.objective(), loaded.gap()), (model.objective(), model.gap()));
        assert_eq!(loaded.trace().epochs.len(), model.trace().epochs.len());
        assert_eq!(loaded.trace().n_first, model.trace().n_first);
        assert_eq!(loaded.converged(), model.converged());
        assert!(loaded.to_bytes().unwrap() == bytes);
        let narrow = LinearClassifier::<i8>::from_bytes(&bytes).unwrap();
        assert_eq!(narrow.classes(), [-5, 3, 8]);
    }

    #[test]
    fn a_file_of_another_model_type_or_label_type_is_an_error() {
        let labels = [false, false, true, true, true, true];
        let model = LogisticRegression::new().fit(rows(), &labels).unwrap();
        let bytes = model.to_bytes().unwrap();
        let loaded = read::<bool>(&bytes, &[LOGISTIC]).map(LogisticClassifier).unwrap();
        let probabilities = |model: &LogisticClassifier<bool>| model.probabilities(rows()).unwrap();
        assert_eq!(probabilities(&loaded), probabilities(&model));
        let message = |found: Result<LinearClassifier<i64>>| found.unwrap_err().to_string();
        let other = message(LinearClassifier::from_bytes(&bytes));
        assert!(other.contains("labels have another type"), "{other}");
        let labels = [1_i64, 1, 2, 2, 2, 2];
        let bytes = MulticlassSvc::new().fit(rows(), &labels).unwrap().to_bytes().unwrap();
        let kind = message(read(&bytes, &[LOGISTIC]));
        assert!(kind.contains("holds a \"MulticlassSVC\""), "{kind}");
        let missing = message(LinearClassifier::load("no/such/file.npz"));
        assert!(missing.starts_with("no/such/file.npz: "), "{missing}");
    }

    #[test]
    fn every_damaged_file_is_an_error() {
        let labels = [1_i64, 1, 2, 2, 3, 3];
        let bytes = MulticlassSvc::new().fit(rows(), &labels).unwrap().to_bytes().unwrap();
        for length in (0..bytes.len()).step_by(7) {
            assert!(LinearClassifier::<i64>::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        // Changes of dates, file attributes and a few unused fields of the archive are not detected, but they do not
        // change the model.
        let good = LinearClassifier::<i64>::from_bytes(&bytes).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x15;
            if let Ok(read) = LinearClassifier::<i64>::from_bytes(&changed) {
                assert_eq!(read.coef(), good.coef(), "{at}");
            }
        }
    }

    #[test]
    fn files_of_numpy_are_read() {
        // Written by MulticlassSVC.save in Python: a model with string labels and weights in single precision.
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/rust-models");
        let path = Path::new(folder).join("python.npz");
        let model = LinearClassifier::<String>::load(path).unwrap();
        assert_eq!(model.classes(), ["a", "b", "\u{e9}"]);
        assert_eq!(model.coef(), [0.5, -1.0, 2.0, 0.25, -3.0, 1.5]);
        assert_eq!(model.intercept(), [0.5, 0.0, -0.5]);
        assert!(model.gap() >= 0.0 && model.objective() > 0.0);
    }
}
