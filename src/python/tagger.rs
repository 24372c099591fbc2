//! Predictions with trained sequence labellers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use numpy::PyArray1;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator};

use super::arrays::{Matrix, Vector, slice};
use super::sentences::{PyVocabulary, Reader};
use super::session::{THREADS_PER_CORE, guarded, run_session};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::sequence::{
    FeatureRows, KnownLabels, LabelWeights, NamedRows, Sequences, Tagger, Transitions, Vocabulary,
};
use crate::structured::Links;

/// Number of tokens in a chunk. One chunk is tagged while the next chunk is read.
const CHUNK_TOKENS: usize = 1024;

/// The weights of a tagger as Python arrays.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct TaggerRecord<'py> {
    n_states: usize,
    links: Vector<'py, u8>,
    /// The offset of each feature's entries in `labels` and `values`.
    offsets: Vector<'py, i64>,
    labels: Vector<'py, u16>,
    values: Vector<'py, f64>,
    link_weights: Vector<'py, f64>,
    edge_weights: Vector<'py, f64>,
}

/// A trained model for tagging.
#[pyclass(frozen, name = "Tagger")]
pub(super) struct PyTagger(Tagger);

/// Sentences as rows, offsets of the sentences, rows of features for the transitions, and known
/// labels.
type Input<'py> = (Matrix<'py>, Vector<'py, i64>, Option<Matrix<'py>>, Option<Vector<'py, i32>>);

/// Predictions as offsets of the sentences and concatenated labels.
type Tagged<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u32>>);

/// The best label sequences of each sentence with their scores, best first.
type RankedLists = Vec<Vec<(Vec<u32>, f64)>>;

impl PyTagger {
    /// Calls `predict` with the model and the sentences, without the GIL.
    fn predict<R: Send>(
        &self,
        py: Python<'_>,
        (rows, offsets, edges, known): &Input<'_>,
        n_threads: usize,
        predict: impl FnOnce(&Tagger, &Sequences<'_>, &Interrupt) -> Result<R> + Send,
    ) -> PyResult<R> {
        let edges = edges.as_ref().map(Matrix::rows).transpose()?;
        let (rows, offsets) = (rows.rows()?, slice(offsets)?);
        let known = match known {
            Some(known) => Some(KnownLabels::new(slice(known)?, rows.n_rows(), self.0.n_states())?),
            None => None,
        };
        let sequences = Sequences { rows, offsets, edges, known };
        run_session(py, n_threads, None, |session| predict(&self.0, &sequences, session.interrupt))
    }
}

#[pymethods]
impl PyTagger {
    #[new]
    fn new(weights: &Bound<'_, PyDict>) -> PyResult<Self> {
        guarded(|| {
            let record: TaggerRecord<'_> = weights.extract()?;
            let links = Links::from_codes(record.n_states, slice(&record.links)?)?;
            let negative = || Error::argument("emissions", "offsets must not be negative");
            let offsets = slice(&record.offsets)?.iter().map(|at| usize::try_from(*at));
            let emissions = LabelWeights {
                offsets: offsets.collect::<std::result::Result<_, _>>().map_err(|_| negative())?,
                labels: slice(&record.labels)?.to_vec(),
                values: slice(&record.values)?.to_vec(),
            };
            let weights = slice(&record.link_weights)?.to_vec();
            let features = slice(&record.edge_weights)?.to_vec();
            Ok(Self(Tagger::new(emissions, Transitions { links, weights, features })?))
        })
    }

    /// Predicts the labels of all rows.
    fn decode<'py>(
        &self,
        py: Python<'py>,
        input: Input<'py>,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        guarded(|| {
            let labels = self.predict(py, &input, n_threads, Tagger::decode)?;
            Ok(PyArray1::from_vec(py, labels))
        })
    }

    /// Predicts labels for sentences of strings, as (offsets, labels). This thread holds the GIL
    /// and reads sentences, while other threads tag the sentences that have been read.
    fn tag<'py>(
        &self,
        py: Python<'py>,
        vocabulary: PyRef<'py, PyVocabulary>,
        sentences: &Bound<'py, PyAny>,
        n_threads: usize,
    ) -> PyResult<Tagged<'py>> {
        guarded(|| {
            let (tagger, names, interrupt) = (&self.0, &vocabulary.0, Interrupt::default());
            let tag = |chunk: Chunk| chunk.tag(names, tagger, &interrupt);
            let mut source = Source::new(sentences)?;
            let first = source.read(py)?;
            let beside = n_threads > 1 && !source.ended;
            let read = || {
                let read = Python::attach(|py| source.read(py));
                read.inspect_err(|error| {
                    if !is_ordinary(error) {
                        interrupt.raise();
                    }
                })
            };
            let chunks = if beside {
                tag_in_parallel(py, first, read, tag, n_threads - 1)?
            } else {
                tag_here(py, first, read, tag)?
            };
            let mut offsets = vec![0];
            offsets.extend(source.sizes.iter().scan(0, |end, size| {
                *end += size;
                Some(*end)
            }));
            Ok((PyArray1::from_vec(py, offsets), PyArray1::from_vec(py, chunks.concat())))
        })
    }

    /// Finds the k best label sequences of each sentence, with their scores or log probabilities.
    fn decode_best(
        &self,
        py: Python<'_>,
        input: Input<'_>,
        k: usize,
        normalised: bool,
        n_threads: usize,
    ) -> PyResult<RankedLists> {
        guarded(|| {
            self.predict(py, &input, n_threads, |tagger, sequences, interrupt| {
                tagger.decode_best(sequences, k, normalised, interrupt)
            })
        })
    }

    /// Returns the score, or log probability, of the given labels of each sentence.
    fn scores<'py>(
        &self,
        py: Python<'py>,
        input: Input<'py>,
        labels: Vector<'py, u32>,
        normalised: bool,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        guarded(|| {
            let labels = slice(&labels)?;
            let found = self.predict(py, &input, n_threads, |tagger, sequences, interrupt| {
                tagger.scores(sequences, labels, normalised, interrupt)
            })?;
            Ok(PyArray1::from_vec(py, found))
        })
    }

    /// Returns the probability of each label at each row, or the max-marginals.
    fn marginals<'py>(
        &self,
        py: Python<'py>,
        input: Input<'py>,
        maximal: bool,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        guarded(|| {
            let found = self.predict(py, &input, n_threads, |tagger, sequences, interrupt| {
                if maximal {
                    tagger.max_marginals(sequences, interrupt)
                } else {
                    tagger.marginals(sequences, interrupt)
                }
            })?;
            Ok(PyArray1::from_vec(py, found))
        })
    }
}

/// A chunk of sentences that are tagged together.
struct Chunk {
    rows: NamedRows,
    /// Number of tokens of each sentence.
    sizes: Vec<i64>,
}

impl Chunk {
    fn tag(
        mut self,
        names: &Vocabulary,
        tagger: &Tagger,
        interrupt: &Interrupt,
    ) -> Result<Vec<u32>> {
        let mut rows = FeatureRows::new();
        self.rows.resolve(names, &mut rows)?;
        let mut offsets = vec![0];
        self.sizes.iter().for_each(|size| offsets.push(offsets[offsets.len() - 1] + size));
        let rows = Data::Csr64(rows.matrix(names.len())?);
        tagger.decode_here(
            &Sequences { rows, offsets: &offsets, edges: None, known: None },
            interrupt,
        )
    }
}

/// A Python iterator over sentences, which is read on demand.
struct Source {
    sentences: Py<PyIterator>,
    /// Number of tokens of each sentence that has been read so far.
    sizes: Vec<i64>,
    ended: bool,
}

impl Source {
    fn new(sentences: &Bound<'_, PyAny>) -> PyResult<Self> {
        let sentences = PyIterator::from_object(sentences)?.unbind();
        Ok(Self { sentences, sizes: Vec::new(), ended: false })
    }

    /// Reads the next chunk of sentences; None if there are no more.
    fn read(&mut self, py: Python<'_>) -> PyResult<Option<Chunk>> {
        py.check_signals()?;
        let (mut reader, start) = (Reader::default(), self.sizes.len());
        let mut sentences = self.sentences.bind(py).clone();
        // Empty sentences count too, because signals are checked only between chunks.
        while !self.ended
            && reader.rows.n_rows() < CHUNK_TOKENS
            && self.sizes.len() < start + CHUNK_TOKENS
        {
            match sentences.next() {
                Some(sentence) => {
                    let size = reader.sentence(&sentence?, self.sizes.len())?;
                    self.sizes.push(size as i64);
                }
                None => self.ended = true,
            }
        }
        let sizes = self.sizes[start..].to_vec();
        Ok((!sizes.is_empty()).then_some(Chunk { rows: reader.rows, sizes }))
    }
}

/// Whether an error comes from the sentences rather than from an interrupt.
fn is_ordinary(error: &PyErr) -> bool {
    Python::attach(|py| error.is_instance_of::<PyException>(py))
}

/// Tags one chunk after another on this thread, and stops at the first failure.
fn tag_here(
    py: Python<'_>,
    first: Option<Chunk>,
    mut read: impl FnMut() -> PyResult<Option<Chunk>>,
    tag: impl Fn(Chunk) -> Result<Vec<u32>> + Sync,
) -> PyResult<Vec<Vec<u32>>> {
    let (mut next, tag, mut found) = (first, &tag, Vec::new());
    while let Some(chunk) = next {
        found.push(py.detach(|| tag(chunk))?);
        next = read()?;
    }
    Ok(found)
}

/// Tags chunks on other threads while this thread reads further chunks. If too many chunks are
/// waiting, this thread tags one of them itself. Reading stops as soon as a chunk has failed.
/// Returns the results in the order of the chunks, or the error of the earliest chunk that failed.
fn tag_in_parallel(
    py: Python<'_>,
    first: Option<Chunk>,
    mut read: impl FnMut() -> PyResult<Option<Chunk>> + Send,
    tag: impl Fn(Chunk) -> Result<Vec<u32>> + Sync,
    n_threads: usize,
) -> PyResult<Vec<Vec<u32>>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let n_threads = n_threads.min(THREADS_PER_CORE * cores);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(n_threads)
        .build()
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))?;
    let (sender, found) = std::sync::mpsc::channel();
    let (waiting, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (waiting, failed, tag) = (&waiting, &failed, &tag);
    let ended = py.detach(|| {
        pool.in_place_scope(|scope| {
            let (mut next, mut number) = (first, 0);
            while let Some(chunk) = next {
                let sender = sender.clone();
                let send = move |chunk| {
                    let labels = tag(chunk);
                    failed.fetch_or(labels.is_err(), Ordering::Relaxed);
                    // Sending fails only if the receiver is gone; the call has then already failed.
                    drop(sender.send((number, labels)));
                    waiting.fetch_sub(1, Ordering::Relaxed);
                };
                if waiting.fetch_add(1, Ordering::Relaxed) < 2 * n_threads {
                    scope.spawn(move |_| send(chunk));
                } else {
                    send(chunk);
                }
                if failed.load(Ordering::Relaxed) {
                    break;
                }
                number += 1;
                next = read()?;
            }
            Ok::<_, PyErr>(())
        })
    });
    drop(sender);
    let mut chunks: Vec<(usize, Result<Vec<u32>>)> = found.into_iter().collect();
    chunks.sort_unstable_by_key(|(number, _)| *number);
    let tagged: Result<Vec<_>> = chunks.into_iter().map(|(_, labels)| labels).collect();
    match ended {
        Err(error) if tagged.is_ok() || !is_ordinary(&error) => Err(error),
        _ => Ok(tagged?),
    }
}
