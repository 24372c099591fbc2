"""Taggers: a label for each token of a sentence."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap import _core
from dualgap._choices import Sampling, check_choice
from dualgap._estimator import CertifiedEstimator, all_or_nothing, progress, refuse_unused
from dualgap._validation import FloatArray, check_positive, resolve_seed, resolve_threads
from dualgap.sequence._explain import Evidence, explain
from dualgap.sequence._file import read_tagger, write_tagger
from dualgap.sequence._sentences import (
    Rowed,
    Sentences,
    peek,
    read_labels,
    read_matrices,
    read_named,
)
from dualgap.sequence._tables import LabelledTable
from dualgap.sequence._training import (
    error_costs,
    examples_weights,
    marked_columns,
    regularization,
)
from dualgap.sequence._transitions import (
    FORBIDDEN,
    check_labels,
    seen_transitions,
    transition_codes,
)
from dualgap.sequence._weights import Names, drop_unused, weights_of

__all__ = ["SequenceTagger"]


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceTagger(CertifiedEstimator):
    """A linear chain for sentences: structured SVM or conditional random field.

    The score of labels y of a sentence is ``sum_t <W[:, y_t], x_t> + sum_t T[y_{t-1}, y_t] +
    start[y_0] + end[y_last]``; the best ones are found exactly. Training minimises
    ``1/2 ||w||^2 + C * sum_i loss_i(w)`` over the sentences, divided by C times their number, with
    a duality gap (Lacoste-Julien et al., ICML 2013; Le Priol et al., UAI 2018).

    Parameters
    ----------
    loss : {"hamming", "log"}, default="hamming"
        "hamming": the structured hinge loss of the number of wrong labels, quick and, by F1,
        usually a little better; "log": the conditional random field, which knows probabilities.
    C : float, default=0.1
        Weight of the loss. CRFsuite's ``c2`` is ``1 / (2 * C)`` for ``loss="log"``.
    transitions : str, mask or pairs of labels, default="all"
        Which labels may follow each other. "all"; "seen": all, but only those that occur in
        training have a weight (CRFsuite's default); "bio" or "bioes": what these schemes of chunks
        allow, "bioes" with "L" and "U" as other names of "E" and "S"; a boolean array of shape
        (n_classes, n_classes) for the sorted classes; or a set of allowed (from, to) pairs. What is
        forbidden is never predicted.
    boundaries : bool, default=True
        Whether there are weights for the first and the last label of a sentence.
    pairs : {"all", "seen"}, default="all"
        Which pairs of a feature and a label have a weight: all, or those that occur together in
        training, as in CRFsuite. "all" is a little better, "seen" makes smaller models, and with
        ``loss="log"`` takes much less time.
    transition_features : sequence of str or of int, optional
        Features of transitions, with a weight for each pair of labels that follow each other: those
        whose names begin with one of these strings, or columns of a matrix. They have no other
        weights.
    min_count : int, default=1
        Features in fewer tokens than this are left out. Of features by name only.
    hash_bits : int, optional
        Number the columns of features by so many bits of a hash of their names, at most 30, and
        keep no names (the hashing trick).
    class_weight : dict, optional
        What an error costs at a token of each label; 1 for labels that are not in it. Not with
        ``loss="log"``.
    sampling : {"permutation", "uniform", "gap"}, default="permutation"
        Which sentences a pass visits: each once, or drawn, uniformly or in proportion to their
        duality gaps. Of "hamming" only.
    tol : float, default=0.1
        Duality gap to stop at, in units of the objective. 0.1 is where F1 on held-back sentences of
        CoNLL-2000 stops rising with "hamming"; the gap of "log" falls fast, and 1e-3 costs little
        more.
    max_iter : int, default=100
        Maximum number of passes over the sentences.
    warm_start : bool, default=False
        Whether a fit begins where the one before ended, if the sentences have the same lengths.
    random_state, n_jobs, verbose, callback
        As for all estimators: the seed, threads (all cores by default), a line for each pass on
        stderr, and ``callback(epoch, seconds, objective, dual_objective)``, which may end the fit.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    n_features_in_ : int
        Number of columns in training.
    transition_ : LabelledTable
        The weights of transitions, ``transition_["B", "I"]``; -inf where forbidden.
    notes_ : dict
        Empty; what you put into it, if JSON can hold it, is saved with the model.
    objective_, dual_objective_, duality_gap_, relative_gap_, converged_, certificate_, n_iter_, \
history_, null_objective_
        The record of the fit, as for all certified estimators.

    Notes
    -----
    Sentences are lists of tokens, and a token is a list of feature names, or a dictionary from
    names to strings ("name=value", weight 1), truth values or numbers (weights), or nested ones,
    whose names come behind "name:"; a sentence may as well be a matrix with a row for each token,
    dense or CSR; or all of them may be one matrix whose sentences have the given `lengths`. What
    did not occur in training is left out in predictions.

    For scikit-learn's model selection this is an estimator as any other:
    ``GridSearchCV(SequenceTagger(), {"C": [0.03, 0.1, 0.3]}).fit(X, y)`` with lists of sentences.

    Memory: the sentences as numbers, twelve bytes a feature of a token; with "hamming" one vector
    of weights and for each sentence the labels that have weight; with "log" some 15 vectors of
    weights, fewer if they are long.

    Examples
    --------
    >>> X = [[["w=the"], ["w=cat"]], [["w=a"], ["w=dog"], ["w=ran"]]]
    >>> y = [["D", "N"], ["D", "N", "V"]]
    >>> tagger = SequenceTagger(C=10, tol=1e-3, random_state=0).fit(X, y)
    >>> tagger.predict([[["w=the"], ["w=dog"], ["w=ran"]]])
    [['D', 'N', 'V']]
    """

    loss: Literal["hamming", "log"] = field(default="hamming", kw_only=False)
    C: float = 0.1
    transitions: Any = "all"
    boundaries: bool = True
    pairs: Literal["all", "seen"] = "all"
    transition_features: Sequence[str] | Sequence[int] | None = None
    min_count: int = 1
    hash_bits: int | None = None
    class_weight: Mapping[Any, float] | None = None
    sampling: Sampling = "permutation"
    tol: float = 0.1
    max_iter: int = 100
    warm_start: bool = False

    classes_: NDArray[Any] = field(init=False)
    n_features_in_: int = field(init=False)
    notes_: dict[str, Any] = field(init=False)

    _remedy: ClassVar[str] = "max_iter or tol"

    @all_or_nothing
    def fit(
        self,
        X: Sentences,
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        token_weight: Any = None,
        lengths: ArrayLike | None = None,
    ) -> Self:
        """Fit the tagger.

        Parameters
        ----------
        X : iterable of sentences, or matrix
            Sentences of features by name, matrices with a row for each token, or one matrix.
        y : iterable of sequences of labels
            The labels of each sentence; of one matrix with `lengths`, one label for each row.
        sample_weight : array-like of shape (n_sentences,), optional
            Weight of each sentence's loss.
        token_weight : sequence of sequences of float, optional
            What an error costs at each token, shaped as `y`. Not with ``loss="log"``.
        lengths : array-like of int, optional
            Numbers of rows of the sentences where X is one matrix.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or parameters; the message names the argument.
        """
        self._check_parameters()
        data, vocabulary = self._read_training(X, lengths)
        if len(data) == 0:
            msg = "X: there must be at least one sentence"
            raise ValueError(msg)
        classes, codes = read_labels(y, data.offsets, flat=lengths is not None)
        if len(classes) == 0:
            msg = "y: there is no token in any sentence"
            raise ValueError(msg)
        seen = seen_transitions(codes, data.offsets, len(classes))
        links = transition_codes(self.transitions, classes, bool(self.boundaries), seen)
        check_labels(links, classes, codes, data.offsets)
        marks = marked_columns(self.transition_features, vocabulary, data.n_features)
        rows, edges = (data.rows, None) if marks is None else data.split(marks)
        weights = examples_weights(sample_weight, len(data))
        settings = {
            "n_states": len(classes),
            "loss": self.loss,
            "links": links,
            "seen_pairs": self.pairs == "seen",
            "token_weight": error_costs(
                self, token_weight, classes[codes], data.offsets, flat=lengths is not None
            ),
            "edges": edges,
            "sampling": self.sampling,
            "seed": resolve_seed(self.random_state),
            "start": getattr(self, "_point", None) if self.warm_start else None,
            "regularization": regularization(self.C, weights, len(data)),
            "sample_weight": weights,
            "tol": float(self.tol),
            "max_iter": int(self.max_iter),
            "n_threads": resolve_threads(self.n_jobs),
            "callback": progress(self.verbose, self.callback),
        }
        result = _core.fit_sequences(rows, data.offsets, codes, settings)
        self._point = result["point"] if self.warm_start else None
        n_marked = 0 if marks is None else int(marks.sum())
        n_plain = data.n_features - n_marked
        kept = weights_of(result, len(classes), links, n_plain, n_marked)
        kept.on_transitions = marks
        if vocabulary is not None and self.hash_bits is None:
            kept = drop_unused(kept, vocabulary)
        elif vocabulary is not None:
            kept.names = Names(b"", [], self.hash_bits)
        self._weights, self._loss = kept, self.loss
        self.classes_, self.n_features_in_ = classes, data.n_features
        self.notes_ = {}
        self._store_run(result)
        return self

    def predict(self, X: Sentences, *, lengths: ArrayLike | None = None) -> Any:
        """Return the best labels.

        Returns
        -------
        list of lists of labels, or ndarray of shape (n_rows,) for one matrix with `lengths`

        Raises
        ------
        ValueError
            For bad data, and where `transitions` forbids all labels of a sentence of its length.
        """
        check_is_fitted(self)
        weights, named = self._weights, False
        if lengths is None:
            named, X = peek(X)
        if named and weights.names is not None and weights.on_transitions is None:
            vocabulary, threads = weights.names.vocabulary, resolve_threads(self.n_jobs)
            offsets, codes = weights.tagger.tag(vocabulary, X, threads)
        else:
            data = self._read(X, lengths)
            offsets = data.offsets
            codes = weights.tagger.decode(self._input(data), resolve_threads(self.n_jobs))
        return self._labelled(codes, offsets, flat=lengths is not None)

    def predict_nbest(
        self, X: Sentences, k: int, *, lengths: ArrayLike | None = None
    ) -> list[list[tuple[list[Any], float]]]:
        """Return the `k` best labels of each sentence, exactly.

        Returns
        -------
        list of lists of (labels, score), best first
            Scores are logarithms of probabilities for ``loss="log"``. Sentences that have fewer
            than `k` labels have as many as there are.
        """
        check_is_fitted(self)
        check_positive("k", k, integer=True)
        data = self._read(X, lengths)
        normalised, threads = self._loss == "log", resolve_threads(self.n_jobs)
        found = self._weights.tagger.decode_best(self._input(data), int(k), normalised, threads)
        classes = self.classes_.tolist()
        return [[([classes[c] for c in codes], s) for codes, s in ranked] for ranked in found]

    def predict_marginals(
        self, X: Sentences, *, lengths: ArrayLike | None = None
    ) -> list[FloatArray]:
        """Return what each label has for it at each token.

        Returns
        -------
        list of ndarray of shape (n_tokens, n_classes)
            For ``loss="log"`` the probability of each label at each token. For "hamming"
            max-marginals: the score of the best labels of the sentence with this label there, less
            that of the best ones of all; 0 for the best, and -inf for what is forbidden.
        """
        check_is_fitted(self)
        data = self._read(X, lengths)
        maximal, threads = self._loss != "log", resolve_threads(self.n_jobs)
        flat = self._weights.tagger.marginals(self._input(data), maximal, threads)
        return np.split(flat.reshape(-1, len(self.classes_)), data.offsets[1:-1])

    def score(
        self,
        X: Sentences,
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        lengths: ArrayLike | None = None,
    ) -> float:
        """Return the share of tokens whose label is right; see `chunk_f1` for that of chunks.

        Labels that did not occur in training are errors. `sample_weight` is that of sentences.
        """
        check_is_fitted(self)
        data = self._read(X, lengths)
        threads = resolve_threads(self.n_jobs)
        found = self.classes_[self._weights.tagger.decode(self._input(data), threads)]
        classes, codes = read_labels(y, data.offsets, flat=lengths is not None)
        right = (classes[codes] if len(codes) else found) == found
        weights = examples_weights(sample_weight, len(data))
        sizes = np.diff(data.offsets)
        tokens = np.ones(len(found)) if weights is None else np.repeat(weights, sizes)
        total = float(tokens.sum())
        return float(tokens @ right) / total if total > 0 else 1.0

    def explain(self, sentence: Any, labels: Iterable[Any] | None = None) -> list[Evidence]:
        """Return for each token of a sentence what spoke for its label.

        Parameters
        ----------
        sentence : one sentence
            As those of `predict`.
        labels : iterable of labels, optional
            The labels to explain; those predicted by default.

        Returns
        -------
        list of Evidence
            ``(label, features, transition)``: the features' contributions to the label's score, the
            largest first, and that of the transition from the label before, or of the boundary.
        """
        check_is_fitted(self)
        data = self._read([sentence], None)
        if labels is None:
            codes = self._weights.tagger.decode(self._input(data), 1).tolist()
        else:
            place = {label: index for index, label in enumerate(self.classes_.tolist())}
            wanted = list(labels)
            unknown = [label for label in wanted if label not in place]
            if unknown or len(wanted) != data.offsets[-1]:
                msg = f"labels: must be a known label for each token, got {wanted!r}"
                raise ValueError(msg)
            codes = [place[label] for label in wanted]
        return explain(self._weights, data, codes, self.classes_)

    @property
    def feature_names_(self) -> list[str] | None:
        """Names of the columns of `emission_`; None of matrices and hashed names."""
        check_is_fitted(self)
        names = self._weights.names
        return None if names is None or names.bits is not None else names.vocabulary.names()

    @property
    def emission_(self) -> sp.csr_array:
        """Weights of columns and labels, sparse, of shape (n_columns, n_classes).

        Columns that have none are left out where they have names (see `feature_names_`), and so are
        those of transitions.
        """
        check_is_fitted(self)
        return self._weights.emission

    @property
    def transition_(self) -> LabelledTable:
        """Weights of transitions: rows are the labels before, columns those after."""
        return self._links(0, self.classes_.tolist())

    @property
    def boundary_(self) -> LabelledTable:
        """Weights of the first ("start") and the last ("end") label of a sentence."""
        return self._links(len(self.classes_), ["start", "end"])

    def _links(self, first: int, rows: list[Any]) -> LabelledTable:
        check_is_fitted(self)
        n = len(self.classes_)
        weights = self._weights
        values = np.where(weights.links == FORBIDDEN, -np.inf, weights.link_weights)
        table = values.reshape(n + 2, n)[first : first + len(rows)]
        return LabelledTable(table, rows, self.classes_.tolist())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tagger to a file: plain arrays, no pickle, no zeros among the weights.

        Raises
        ------
        OSError
            If the file cannot be written; what it held before is then as it was.
        """
        check_is_fitted(self)
        meta = {
            "loss": self._loss,
            "C": float(self.C),
            "n_features_in": int(self.n_features_in_),
            "notes": self.notes_,
            "record": {name: getattr(self, name) for name in _RECORD},
        }
        write_tagger(path, meta, self._weights, self.classes_)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a tagger that `save` wrote.

        Parameters other than `loss` and `C` are the defaults.

        Raises
        ------
        ValueError
            If the file is not one, or damaged. Nothing in it is executed.
        """
        meta, weights, classes = read_tagger(path)
        tagger = cls(meta["loss"], C=meta["C"])
        tagger._weights, tagger._loss, tagger.classes_ = weights, meta["loss"], classes
        tagger.n_features_in_, tagger.notes_ = meta["n_features_in"], dict(meta["notes"])
        for name in _RECORD:
            setattr(tagger, name, meta["record"][name])
        return tagger

    def _check_parameters(self) -> None:
        check_choice("loss", self.loss, "hamming", "log")
        check_choice("pairs", self.pairs, "all", "seen")
        check_positive("C", self.C)
        check_positive("tol", self.tol, zero=True)
        check_positive("max_iter", self.max_iter, integer=True)
        check_positive("min_count", self.min_count, integer=True)
        if self.hash_bits is not None:
            check_positive("hash_bits", self.hash_bits, integer=True)
            refuse_unused(self, ["min_count"], "hash_bits")
            if self.hash_bits > 30:
                msg = f"hash_bits: must be at most 30, got {self.hash_bits}"
                raise ValueError(msg)
        if self.loss == "log":
            refuse_unused(self, ["class_weight", "sampling"], 'loss="log"')

    def _read_training(self, X: Any, lengths: Any) -> tuple[Rowed, _core.Vocabulary | None]:
        named, X = (False, X) if lengths is not None else peek(X)
        if not named:
            refuse_unused(self, ["min_count", "hash_bits"], "a matrix")
            return read_matrices(X, lengths), None
        vocabulary = _core.Vocabulary(self.hash_bits)
        count = int(self.min_count)
        data = read_named(lambda X: vocabulary.learn(X, count), X, lambda: len(vocabulary))
        return data, vocabulary

    def _read(self, X: Any, lengths: Any) -> Rowed:
        """Read sentences of the kind that the tagger was trained on."""
        names = self._weights.names
        if names is not None:
            if lengths is not None or not peek(X)[0]:
                msg = "X: the tagger was trained on features by name, got a matrix"
                raise ValueError(msg)
            vocabulary = names.vocabulary
            return read_named(vocabulary.read, X, lambda: len(vocabulary))
        data = read_matrices(X, lengths)
        if len(data) and data.n_features != self.n_features_in_:
            msg = f"X: must have {self.n_features_in_} features, got {data.n_features}"
            raise ValueError(msg)
        return data

    def _input(self, data: Rowed) -> Any:
        """Hand sentences to the core."""
        if len(data) == 0:
            data = Rowed(np.zeros((0, self.n_features_in_)), data.offsets, self.n_features_in_)
        if self._weights.on_transitions is None:
            return data.rows, data.offsets, None
        rows, edges = data.split(self._weights.on_transitions)
        return rows, data.offsets, edges

    def _labelled(self, codes: Any, offsets: Any, *, flat: bool) -> Any:
        if flat:
            return self.classes_[codes]
        labels = self.classes_.astype(object)[codes].tolist()
        ends = offsets.tolist()
        return [labels[a:b] for a, b in pairwise(ends)]


_RECORD = (
    "n_iter_",
    "objective_",
    "dual_objective_",
    "duality_gap_",
    "relative_gap_",
    "null_objective_",
    "converged_",
    "certificate_",
)
