//! Reads sentences from Python. Tokens are lists of strings, or dictionaries of features.

use numpy::PyArray1;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyInt, PyIterator, PyList, PyMapping, PyString, PyTuple,
};

use super::session::guarded;
use crate::error;
use crate::sequence::{FeatureRows, NamedRows, Vocabulary};

/// Maximum depth of nested feature values. Each level uses the call stack.
const MAX_DEPTH: usize = 32;

/// Number of tokens between two checks for signals.
const TOKENS_PER_CHECK: i64 = 1 << 14;

/// Number of tokens whose feature names are looked up together.
const CHUNK_TOKENS: usize = 1 << 10;

/// Reads tokens into rows of feature names.
#[derive(Default)]
pub(super) struct Reader {
    pub rows: NamedRows,
    /// Buffer for text of the form "name=value".
    text: String,
}

impl Reader {
    fn add(&mut self, name: &str, value: f64) {
        self.rows.add(name.as_bytes(), value);
    }

    /// Reads a sentence and returns its number of tokens. `place` is the index of the sentence in
    /// error messages.
    pub fn sentence(&mut self, sentence: &Bound<'_, PyAny>, place: usize) -> PyResult<usize> {
        let before = self.rows.n_rows();
        if let Ok(tokens) = sentence.cast::<PyList>() {
            for token in tokens.iter() {
                self.token(&token)
                    .map_err(|error| self.located(sentence, place, before, &error))?;
            }
        } else {
            let is_token =
                sentence.is_instance_of::<PyString>() || sentence.is_instance_of::<PyDict>();
            let (false, Ok(tokens)) = (is_token, PyIterator::from_object(sentence)) else {
                let message = format!(
                    "X: sentence {place} must be a sequence of tokens; predict_single takes one \
                     sentence"
                );
                return Err(PyValueError::new_err(message));
            };
            for token in tokens {
                let read = self.token(&token?);
                read.map_err(|error| self.located(sentence, place, before, &error))?;
            }
        }
        Ok(self.rows.n_rows() - before)
    }

    /// Adds the index of a token to an error.
    fn located(
        &self,
        sentence: &Bound<'_, PyAny>,
        place: usize,
        before: usize,
        error: &PyErr,
    ) -> PyErr {
        let token = self.rows.n_rows() - before;
        if error.is_instance_of::<PyTypeError>(sentence.py())
            || error.is_instance_of::<PyValueError>(sentence.py())
        {
            let message =
                format!("X: sentence {place}, token {token}: {}", error.value(sentence.py()));
            return PyValueError::new_err(message);
        }
        error.clone_ref(sentence.py())
    }

    fn token(&mut self, token: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(features) = token.cast::<PyList>() {
            for feature in features.iter() {
                self.add(name(&feature)?.to_str()?, 1.0);
            }
        } else if let Ok(features) = token.cast::<PyDict>() {
            for (key, value) in features.iter() {
                let key = name(&key)?;
                self.entry(key.to_str()?, &value, 0)?;
            }
        } else {
            self.others("", token, 0)?;
        }
        self.rows.end_row();
        Ok(())
    }

    /// Adds all features of a token or of a nested value; `prefix` is put before each name.
    fn others(&mut self, prefix: &str, features: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if depth > MAX_DEPTH {
            let message = format!(
                "features must be nested at most {MAX_DEPTH} deep; they are deeper, or contain themselves"
            );
            return Err(PyValueError::new_err(message));
        }
        if features.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err(
                "must be features by name, got one string; for raw words, use features=\"words\"",
            ));
        }
        if let Ok(entries) = features.cast::<PyMapping>() {
            for entry in entries.items()?.iter() {
                let pair = entry.cast::<PyTuple>()?;
                let key = pair.get_item(0)?;
                let key = [prefix, name(&key)?.to_str()?].concat();
                self.entry(&key, &pair.get_item(1)?, depth)?;
            }
            return Ok(());
        }
        let Ok(features) = PyIterator::from_object(features) else {
            let kind = features.get_type();
            let message = format!("must be a list or a dictionary of features, got {kind}");
            return Err(PyTypeError::new_err(message));
        };
        for feature in features {
            let feature = feature?;
            let feature = [prefix, name(&feature)?.to_str()?].concat();
            self.add(&feature, 1.0);
        }
        Ok(())
    }

    /// Adds a feature by name and value.
    fn entry(&mut self, key: &str, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if let Ok(word) = value.cast::<PyString>() {
            let mut text = std::mem::take(&mut self.text);
            text.clear();
            text.push_str(key);
            text.push('=');
            text.push_str(word.to_str()?);
            self.add(&text, 1.0);
            self.text = text;
        } else if let Ok(truth) = value.cast::<PyBool>() {
            self.add(key, f64::from(truth.is_true()));
        } else if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() {
            self.add(key, finite(key, value.extract())?);
        } else if value.is_instance_of::<PyList>()
            || value.cast::<PyMapping>().is_ok()
            || value.is_instance_of::<PyTuple>()
            || value.is_instance_of::<pyo3::types::PySet>()
        {
            self.others(&format!("{key}:"), value, depth + 1)?;
        } else if let Ok(number) = value.extract::<f64>() {
            // This branch handles NumPy numbers and Booleans.
            self.add(key, finite(key, Ok(number))?);
        } else {
            let kind = value.get_type();
            let message = format!("{key} must be a string, a bool or a number, got {kind}");
            return Err(PyTypeError::new_err(message));
        }
        Ok(())
    }
}

/// Returns the number, or an error if it is infinite, NaN or too large for double precision.
fn finite(key: &str, number: PyResult<f64>) -> PyResult<f64> {
    let number = number.ok().filter(|number| number.is_finite());
    number.ok_or_else(|| PyValueError::new_err(format!("{key} must be a finite number")))
}

fn name<'a, 'py>(value: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyString>> {
    value.cast::<PyString>().map_err(|_| {
        PyTypeError::new_err(format!("names of features must be strings, got {}", value.get_type()))
    })
}

/// Rows as NumPy arrays: (offsets of the sentences, offsets of the rows, columns, values).
type ReadRows<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i32>>,
    Bound<'py, PyArray1<f64>>,
);

/// The names of features, numbered by column.
#[pyclass(name = "Vocabulary")]
pub(super) struct PyVocabulary(pub Vocabulary);

#[pymethods]
impl PyVocabulary {
    /// Creates an empty vocabulary. If `bits` is given, columns are hashes of this number of bits
    /// instead of names.
    #[new]
    #[pyo3(signature = (bits=None))]
    fn new(bits: Option<u32>) -> Self {
        Self(bits.map_or_else(Vocabulary::new, Vocabulary::hashed))
    }

    /// Creates a vocabulary of distinct names. The i-th name ends at byte `ends[i]` of `text`.
    #[staticmethod]
    fn from_names(text: &[u8], ends: Vec<usize>) -> PyResult<Self> {
        let mut vocabulary = Vocabulary::new();
        let mut start = 0;
        for (number, end) in ends.into_iter().enumerate() {
            let name = text.get(start..end).filter(|name| std::str::from_utf8(name).is_ok());
            let new = name.is_some_and(|name| vocabulary.intern(name) as usize == number);
            if !new {
                return Err(PyValueError::new_err("the names are damaged"));
            }
            start = end;
        }
        Ok(Self(vocabulary))
    }

    /// Number of columns.
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The column of a name, or None if the name is unknown.
    fn find(&self, name: &str) -> Option<u32> {
        self.0.find(name.as_bytes())
    }

    /// All names in the order of their columns; empty if columns are hashes.
    fn names(&self) -> Vec<String> {
        let name = |number| String::from_utf8_lossy(self.0.name(number)).into_owned();
        (0..self.0.names().1.len()).map(name).collect()
    }

    /// Returns the concatenated names, and the end of each name.
    fn text<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, Vec<usize>) {
        let (text, ends) = self.0.names();
        (PyBytes::new(py, text), ends.to_vec())
    }

    /// Returns a vocabulary with only the names of the given columns.
    fn keep(&self, columns: Vec<u32>) -> PyResult<Self> {
        let mut kept = vec![false; self.0.names().1.len()];
        for column in columns {
            let slot = kept.get_mut(column as usize);
            *slot.ok_or_else(|| PyValueError::new_err("no such column"))? = true;
        }
        let mut vocabulary = self.0.clone();
        vocabulary.retain(|number| kept[number]);
        Ok(Self(vocabulary))
    }

    /// Reads sentences and adds their new names to the vocabulary. Then drops the names that occur in fewer than
    /// `min_count` tokens. Error messages number the sentences from `first`.
    #[pyo3(signature = (sentences, min_count, first=0))]
    fn learn<'py>(
        &mut self,
        py: Python<'py>,
        sentences: &Bound<'py, PyAny>,
        min_count: u32,
        first: usize,
    ) -> PyResult<ReadRows<'py>> {
        guarded(|| {
            let mut rows = FeatureRows::new();
            let vocabulary = &mut self.0;
            let offsets = read((sentences, first), |named| named.learn(vocabulary, &mut rows))?;
            if min_count > 1 && !self.0.is_hashed() {
                let counts = rows.counts(self.0.len());
                rows.renumber(&self.0.retain(|number| counts[number] >= min_count));
            }
            Ok(arrays(py, offsets, rows))
        })
    }

    /// Reads sentences and ignores unknown names.
    fn read<'py>(&self, py: Python<'py>, sentences: &Bound<'py, PyAny>) -> PyResult<ReadRows<'py>> {
        guarded(|| {
            let mut rows = FeatureRows::new();
            let offsets = read((sentences, 0), |named| named.resolve(&self.0, &mut rows))?;
            Ok(arrays(py, offsets, rows))
        })
    }
}

/// Reads sentences, numbered from `first`, and passes their rows to a function. Returns the offsets of the
/// sentences.
fn read(
    (sentences, first): (&Bound<'_, PyAny>, usize),
    mut take: impl FnMut(&mut NamedRows) -> error::Result<()>,
) -> PyResult<Vec<i64>> {
    let (mut offsets, mut polled) = (vec![0], 0);
    let mut reader = Reader::default();
    for (place, sentence) in PyIterator::from_object(sentences)?.enumerate() {
        let n_rows = reader.sentence(&sentence?, first + place)? as i64;
        offsets.push(offsets[place] + n_rows);
        if reader.rows.n_rows() >= CHUNK_TOKENS {
            take(&mut reader.rows)?;
        }
        if offsets[place + 1] > polled + TOKENS_PER_CHECK {
            polled = offsets[place + 1];
            sentences.py().check_signals()?;
        }
    }
    take(&mut reader.rows)?;
    Ok(offsets)
}

fn arrays(py: Python<'_>, offsets: Vec<i64>, rows: FeatureRows) -> ReadRows<'_> {
    let (ends, columns, values) = rows.into_parts();
    (
        PyArray1::from_vec(py, offsets),
        PyArray1::from_vec(py, ends),
        PyArray1::from_vec(py, columns),
        PyArray1::from_vec(py, values),
    )
}

/// Distinct labels, the index of each token's label, and the offsets of the sentences.
type ReadLabels<'py> = (Vec<String>, Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<i64>>);

/// The index that represents None, an unknown label.
const UNKNOWN: u32 = u32::MAX;

/// Converts string labels to indices. Returns the labels in order of first use, the index of each token's label, and
/// the offsets of the sentences. Returns None if a label is neither a string nor None.
#[pyfunction]
pub(super) fn read_labels<'py>(
    py: Python<'py>,
    sentences: &Bound<'py, PyAny>,
) -> PyResult<Option<ReadLabels<'py>>> {
    guarded(|| {
        let (mut names, mut codes, mut offsets) = (Vocabulary::new(), Vec::new(), vec![0]);
        for sentence in PyIterator::from_object(sentences)? {
            for label in PyIterator::from_object(&sentence?)? {
                let label = label?;
                if label.is_none() {
                    codes.push(UNKNOWN);
                    continue;
                }
                let Ok(label) = label.cast::<PyString>() else { return Ok(None) };
                codes.push(names.intern(label.to_str()?.as_bytes()));
            }
            offsets.push(codes.len() as i64);
        }
        let name = |number| String::from_utf8_lossy(names.name(number)).into_owned();
        let names = (0..names.len()).map(name).collect();
        Ok(Some((names, PyArray1::from_vec(py, codes), PyArray1::from_vec(py, offsets))))
    })
}
